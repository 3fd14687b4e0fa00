"""Queries over Arrow relations, answered on the driver exactly as Spark would answer them, or refused."""
