"""Tunnels: the way into the learners of a running job."""
