"""Changes of tables: at once, or driven by the events of a stream in their order."""
