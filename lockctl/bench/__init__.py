"""How quick the locks of a backend are here: one who has no rival, then several who want the same lock."""
