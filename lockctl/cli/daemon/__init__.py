"""The detached process that holds a lock for `lockctl acquire`, its handle, and what it leaves on the disk."""
