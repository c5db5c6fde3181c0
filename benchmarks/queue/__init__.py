"""A long queue: what a pass of admission costs, what the workers cost at rest, and how soon a job is admitted.

Real workers and a real Postgres. The engine is a double that answers at once, as a cluster of many nodes would.
"""

from benchmarks.queue.measure import measure

__all__ = ["measure"]
