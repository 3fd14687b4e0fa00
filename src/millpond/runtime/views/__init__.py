"""Views that follow their tables, and changes told to sinks."""
