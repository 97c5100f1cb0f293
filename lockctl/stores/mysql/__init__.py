"""MySQL and MariaDB: connections, and cells in a table."""
