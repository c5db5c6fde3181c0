"""Prometheus metrics that this process counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from weft_api.context import Shared

_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The registry is not the global one, so several applications can run in one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody reads these series
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "weft_api_request_seconds",
            "Time to answer, by route template.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.log_lines = Counter("weft_api_log_lines", "Log lines taken in.", registry=self.registry)
        self.log_bytes = Counter("weft_api_log_bytes", "Bytes of log lines taken in.", registry=self.registry)
        self.audit_failures = Counter(
            "weft_api_audit_failures", "Audit records that could not be stored.", registry=self.registry
        )
        self.tunnels = Gauge("weft_api_tunnels", "Tunnels that are open now.", registry=self.registry)
        self.followers = Gauge("weft_api_followers", "Streams being followed now.", ["stream"], registry=self.registry)


METRICS = Shared(lambda _: Metrics())
