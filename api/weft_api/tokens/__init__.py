"""Signing in, and API tokens."""
