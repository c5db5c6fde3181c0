"""The engine ``ray``: learners as actors of a Ray cluster, through Ray's HTTP API."""

from weft_workers.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
