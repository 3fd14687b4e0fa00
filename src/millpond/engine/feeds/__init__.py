"""Feeds of sources that Spark cannot read: journal, feed files, and the conversion of rows to records."""
