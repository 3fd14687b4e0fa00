"""PostgreSQL: connections, types and errors."""
