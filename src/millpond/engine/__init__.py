"""One micro-batch, in the order it happens: read, evaluate, write, refresh views, commit, publish."""
