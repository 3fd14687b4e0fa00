"""Statements to a plan: plain data that explain, runtime, dashboard and tests read."""
