"""Cells in the memory of this process."""
