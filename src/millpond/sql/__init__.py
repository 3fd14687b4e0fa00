"""Text to statements: tokens, dialect, parser, rewrites and rendering for Spark."""
