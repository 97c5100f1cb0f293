"""Consul: locks by sessions, as ``consul lock`` has them, and cells in keys."""
