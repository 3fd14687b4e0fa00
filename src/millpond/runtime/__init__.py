"""A plan becomes a running app on Spark."""
