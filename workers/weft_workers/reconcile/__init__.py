"""Reconciliation: bring a job one step further towards what is desired (docs/lifecycle.md, docs/leases.md)."""

from weft_workers.reconcile.step import step

__all__ = ["step"]
