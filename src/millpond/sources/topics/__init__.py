"""Kafka topics as streams: where to start, what a message holds, and waiting for a topic that is not there."""
