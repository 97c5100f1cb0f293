"""Requests to servers under one absolute deadline, which no library has: from name resolution to the last byte."""
