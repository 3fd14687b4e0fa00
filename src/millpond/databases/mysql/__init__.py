"""MySQL and MariaDB: connections, types and errors."""
