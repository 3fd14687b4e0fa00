"""Millpond: SQL tables kept up to date from streams, files and databases, on Spark."""
