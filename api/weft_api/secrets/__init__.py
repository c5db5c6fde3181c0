"""Secrets kept on the server: written, listed by name, never read back."""
