"""What touches Spark itself: the session, its jars, types and errors, and how tables reach it."""
