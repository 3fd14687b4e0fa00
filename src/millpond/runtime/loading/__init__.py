"""Tables and streams filled from their sources."""
