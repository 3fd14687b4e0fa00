"""Queries over Arrow relations, evaluated on the driver with exactly the result of Spark, or rejected."""
