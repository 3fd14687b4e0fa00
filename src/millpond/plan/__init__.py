"""Planning: statements become a plan, which is plain data that `explain`, the engine, the page and the tests read."""
