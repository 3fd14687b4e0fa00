"""Tables of databases as sinks: rows wait in an outbox, and are applied together with a record of what was applied."""
