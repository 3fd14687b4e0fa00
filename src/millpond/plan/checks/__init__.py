"""The checks: one rule per file, run in the order of CHECKS."""
