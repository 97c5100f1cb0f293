"""``make faults``: on every store, what becomes of a job and of the next one when something goes wrong."""
