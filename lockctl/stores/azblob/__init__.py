"""Azure Blob Storage: requests for the blobs of one container, and cells in them."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text wire.answer wire.http locks.driver documents"
    " locks.machine locks.lock_cells locks.cell locks.objects wire.token stores.azblob.address stores.azblob.access"
    " stores.azblob.protocol stores.azblob.cell"
)
