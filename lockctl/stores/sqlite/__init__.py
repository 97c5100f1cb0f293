"""SQLite: cells in a table of a database in a file."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_sqlite3 _json"
PATH = (
    "locks wire wire.deadline json_text locks.driver documents locks.machine locks.lock_cells locks.cell umask"
    " stores.sqlite.protocol stores.sqlite.wait stores.sqlite.cell"
)
