"""Consul: cells in keys of its store."""
