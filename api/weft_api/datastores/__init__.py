"""Data stores kept on the server, and what is in them."""
