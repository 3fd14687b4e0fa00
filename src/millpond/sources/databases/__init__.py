"""Tables of databases: loaded, compared with the database, and followed where it reports its changes."""
