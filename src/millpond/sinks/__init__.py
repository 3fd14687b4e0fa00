"""Where results go: one file per sink."""
