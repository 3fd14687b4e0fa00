"""Where a table's rows live: one file per backend."""
