"""S3, Amazon's and others': requests for objects of one bucket, and cells in them."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text wire.answer wire.http locks.driver documents"
    " locks.machine locks.lock_cells locks.cell locks.objects wire.aws stores.s3.address stores.s3.protocol"
    " stores.s3.cell"
)
