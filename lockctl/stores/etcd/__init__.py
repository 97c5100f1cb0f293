"""etcd: locks by leases, as ``etcdctl lock`` has them, and cells in keys."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline locks.native json_text wire.stream wire.tls_settings wire.answer wire.http wire.race"
    " stores.etcd.connection stores.etcd.protocol stores.etcd.address stores.etcd.layout"
    " stores.etcd.tokens stores.etcd.session stores.etcd.lock"
)
RECORDS = "stores.etcd.records"
LOOK = "history locks.inspect stores.etcd.share stores.etcd.inspect"
