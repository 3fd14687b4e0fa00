"""Everything that uses Spark directly: the session, the transfer of rows, its errors, its Java process."""
