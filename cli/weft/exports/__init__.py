"""Metrics of jobs in the forms of other programs. Each module needs an extra of its own name."""
