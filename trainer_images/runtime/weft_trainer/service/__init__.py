"""The way to the API: the client, the spool that log lines and metrics wait in until the API has them, and the
heartbeat."""
