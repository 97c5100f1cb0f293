"""What would break the promise of lockctl on this host or in a backend; nothing is changed."""
