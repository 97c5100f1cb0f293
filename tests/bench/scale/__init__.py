"""What many locks, many waiters and many jobs cost: ``python -m tests.bench.scale``."""
