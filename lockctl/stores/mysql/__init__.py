"""MySQL and MariaDB: connections, and cells in a table."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_json"
PATH = (
    "locks wire wire.deadline wire.stream wire.tls_settings json_text locks.driver documents locks.machine"
    " locks.lock_cells locks.cell stores.mysql.address stores.mysql.session stores.mysql.connection stores.mysql.cell"
)
