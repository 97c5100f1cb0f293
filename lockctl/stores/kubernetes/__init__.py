"""Kubernetes: cells in Lease objects, as client-go's leader election has them."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text wire.answer wire.http locks.driver documents"
    " locks.machine locks.lock_cells locks.cell stores.kubernetes.access stores.kubernetes.layout"
    " stores.kubernetes.protocol stores.kubernetes.cell"
)
