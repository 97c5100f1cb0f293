"""PostgreSQL: advisory locks."""
