"""Output in a terminal."""
