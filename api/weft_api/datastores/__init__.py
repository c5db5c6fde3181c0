"""Data stores kept on the server, and their content."""
