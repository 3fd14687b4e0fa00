"""The HTTP source: responses of a server as a table or as a stream."""
