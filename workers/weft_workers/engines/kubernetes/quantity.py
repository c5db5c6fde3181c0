"""Kubernetes' quantities (``100m``, ``24Gi``) as numbers."""

from __future__ import annotations

from kubernetes.utils import quantity


def number(text: str | float) -> float:
    """Raises ValueError for any other text."""
    return float(quantity.parse_quantity(text))  # type: ignore[no-untyped-call]
