"""Files as a source: listing, discovery, reading as a stream, and comparison with a table."""
