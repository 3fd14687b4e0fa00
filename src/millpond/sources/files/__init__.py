"""Files as a source: finding them, splitting them into records, following them, reading them whole."""
