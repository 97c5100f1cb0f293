"""SQLite: cells in a table of a database in a file."""
