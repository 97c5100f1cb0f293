"""Taking a lease, keeping it, and the arithmetic of its deadline."""
