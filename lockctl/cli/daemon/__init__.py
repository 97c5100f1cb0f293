"""The daemon: the detached process that holds a lock for `lockctl acquire`; its handle, and its files on the disk."""
