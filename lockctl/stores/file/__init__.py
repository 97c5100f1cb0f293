"""Files of one host: locks of the kernel."""
