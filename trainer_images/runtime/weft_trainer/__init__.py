"""Weft's agent: what runs inside a learner, in a process, an actor or a pod alike. It speaks HTTP and S3 only.

Training code needs one name of it: ``from weft_trainer import log_metrics``.
"""

from weft_trainer.metrics.logging import log_metrics

__all__ = ["log_metrics"]
