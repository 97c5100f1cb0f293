"""What a lock is, written once: its state machine, and a whole backend over any store that can compare and swap."""
