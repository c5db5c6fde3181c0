"""Sweeps: what is tried next, and the jobs that try it (docs/sweeps.md)."""
