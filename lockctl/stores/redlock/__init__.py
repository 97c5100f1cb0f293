"""Redlock: locks on a majority of independent Redis servers."""
