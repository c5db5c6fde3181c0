"""The engine for Kubernetes clusters: a learner is a pod. ``docs/kubernetes.md`` describes it."""

from weft_workers.engines.kubernetes.engine import KubernetesEngine

__all__ = ["KubernetesEngine"]
