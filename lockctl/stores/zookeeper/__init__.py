"""ZooKeeper: locks by ephemeral nodes, as kazoo and Curator have them, and cells in nodes."""

# what a run loads to take a lock, see lockctl/loading.py
PATH = (
    "lazy locks wire wire.deadline wire.stream locks.native wire.tls_settings stores.zookeeper.address"
    " stores.zookeeper.tokens stores.zookeeper.queue stores.zookeeper.errors stores.zookeeper.link"
    " stores.zookeeper.session stores.zookeeper.node"
    " stores.zookeeper.grant stores.zookeeper.claim stores.zookeeper.lock"
)
RECORDS = "stores.zookeeper.records"
LOOK = (
    "json_text history locks.inspect stores.zookeeper.share stores.zookeeper.hold stores.zookeeper.multiread"
    " stores.zookeeper.records stores.zookeeper.inspect"
)
