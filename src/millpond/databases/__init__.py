"""What sources, sinks and backends share that speak to a database: addresses, connections, types, errors."""
