"""Where data comes from: one file per source."""
