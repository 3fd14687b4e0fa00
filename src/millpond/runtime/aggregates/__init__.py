"""Groups and windows over streams, kept up to date batch by batch."""
