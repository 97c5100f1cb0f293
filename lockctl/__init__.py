"""Run a command under a lease, with a fencing token, and never twice."""

__version__ = "0.1.0"
