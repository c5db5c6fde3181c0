"""Thousands of pods on Kubernetes: their start, what the engine's observation costs, and what the reconciler does.

The API server, etcd, the scheduler and the controllers are real. The nodes are not: see :mod:`benchmarks.pods.nodes`.
"""

from benchmarks.pods.measure import measure

__all__ = ["measure"]
