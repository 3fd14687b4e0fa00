"""What a running app tells of itself."""
