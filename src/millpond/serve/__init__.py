"""An app served to others: control socket, page, HTTP API, metrics. Reads the app, and decides nothing."""
