"""Flows: a stream, the statements it drives, and one batch on its way through them."""
