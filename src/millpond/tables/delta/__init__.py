"""Tables in Delta Lake, written by delta-rs."""
