"""Files of one host: locks of the kernel."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "fcntl"
PATH = "mounts stores.file.address stores.file.layout stores.file.lock"
RECORDS = "stores.file.records"
LOOK = "json_text stores.file.holder"
