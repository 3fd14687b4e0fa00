"""HTTP API, dashboard and metrics: reads the app, decides nothing."""
