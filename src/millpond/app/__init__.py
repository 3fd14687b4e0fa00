"""The life of an app: planned, started, supervised, queried, edited, stopped."""
