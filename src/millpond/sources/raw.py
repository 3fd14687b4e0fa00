"""Raw records: the columns in which text waits to be parsed; no user's column may start like these."""

from __future__ import annotations

VALUE = "_mp_value"  # BINARY: the record as it came; NULL when it is parsed already
SUSPECT = "_mp_suspect"  # BOOLEAN: its text needs a closer look: it may not be UTF-8, or hold more than one value
PROBLEM = "_mp_problem"  # STRING: why it cannot be read at all
HEADER = "_mp_header"  # INT: the number of the CSV header that names its fields
