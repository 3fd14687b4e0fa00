"""ClickHouse: connections by HTTP and by its own protocol, and its types as Arrow's."""
