"""DynamoDB: cells in items of a table, as the lock client of AWS has them."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json binascii"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text wire.answer wire.http wire.aws locks.driver"
    " documents locks.machine locks.lock_cells locks.cell stores.dynamodb.layout stores.dynamodb.protocol"
    " stores.dynamodb.cell"
)
