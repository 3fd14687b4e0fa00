"""The command line: one file per command; prints, decides nothing."""
