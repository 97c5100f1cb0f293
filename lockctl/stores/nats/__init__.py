"""NATS: cells in the keys of a JetStream bucket."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text locks.driver documents locks.machine"
    " locks.lock_cells locks.cell stores.nats.address stores.nats.session stores.nats.protocol stores.nats.cell"
)
