"""Expressions over Arrow tables on the driver, by Spark's rules."""
