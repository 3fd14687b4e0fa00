"""Records: formats of text, record boundaries, type inference, and parsing into rows by Arrow and by Spark."""
