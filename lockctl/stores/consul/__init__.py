"""Consul: locks by sessions, as ``consul lock`` has them, and cells in keys."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline locks.native stores.consul.layout wire.tls_settings wire.stream stores.consul.address"
    " json_text wire.answer wire.http stores.consul.connection stores.consul.protocol stores.consul.claim"
    " stores.consul.lock"
)
RECORDS = "stores.consul.records"
LOOK = (
    "history locks.inspect stores.consul.share stores.consul.hold stores.consul.queue stores.consul.records"
    " stores.consul.inspect"
)
