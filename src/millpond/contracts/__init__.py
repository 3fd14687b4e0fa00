"""What sources, sinks and tables promise, method by method."""
