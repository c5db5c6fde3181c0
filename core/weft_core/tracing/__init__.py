"""Traces, from the request that submits a job to the start of its learners.

Nothing is traced until a collector is configured (``telemetry.otlp_endpoint``). OpenTelemetry is imported only then.

A place in a trace is passed on as W3C's ``traceparent``: in HTTP headers, in the job's row, in a learner's environment.
"""

from __future__ import annotations

from weft_core.settings import TelemetrySettings
from weft_core.tracing.spans import Attribute, Tracing

__all__ = ["Attribute", "Tracing", "open_tracing"]


def open_tracing(settings: TelemetrySettings, service: str) -> Tracing:
    """The tracing of this process.

    Args:
        service: ``weft-api`` or ``weft-worker``.

    Raises:
        ValueError: a collector is configured, but OpenTelemetry is not installed.
    """
    if not settings.otlp_endpoint:
        return Tracing()
    try:
        from weft_core.tracing.otel import OtelTracing
    except ImportError as error:
        raise ValueError(f"telemetry.otlp_endpoint: this needs pip install 'weft[otel]' ({error})") from None
    return OtelTracing(settings.otlp_endpoint, service)
