"""Redis: locks by scripts on one server."""
