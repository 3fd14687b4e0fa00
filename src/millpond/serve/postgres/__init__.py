"""PostgreSQL's wire protocol: psql, drivers and dashboards read the tables of a running app."""
