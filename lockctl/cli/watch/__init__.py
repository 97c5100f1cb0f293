"""What ``lockctl watch`` is made of: what it waits for, what its keys change, and what it shows."""
