"""Traces, from the request that submits a job to the start of its learners: a door that is shut until a collector is
configured (``telemetry.otlp_endpoint``). OpenTelemetry is imported only then.

A place in a trace is passed on as W3C's ``traceparent``: in HTTP headers, in the job's row, in a learner's environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module

from weft_core.settings import TelemetrySettings

Attribute = str | int | float | bool


class Tracing:
    """Traces nothing. Also what :class:`weft_core.otel.OtelTracing` looks like."""

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[dict[str, Attribute]]:
        """Around one HTTP request, in whose trace the caller may already be. What is put into the dictionary until the
        end are the span's attributes; ``http.route`` becomes part of its name."""
        yield {}

    @contextmanager
    def span(self, name: str, parent: str | None, **attributes: Attribute) -> Iterator[str | None]:
        """Around something that takes time now; yields its place for what is to be below it."""
        yield None

    def record(self, name: str, parent: str | None, start: datetime, end: datetime, **attributes: Attribute) -> None:
        """Something that is over. Without ``parent`` nothing: it would be a trace of its own that says little."""

    def here(self) -> str | None:
        """The place of what runs just now; None: in no trace."""
        return None

    def flush(self) -> None:
        """Send what is not sent yet."""

    def close(self) -> None:
        """Send what is not sent yet, for the last time."""


def open_tracing(settings: TelemetrySettings, service: str) -> Tracing:
    """The door, for one process.

    Args:
        service: ``weft-api`` or ``weft-worker``.

    Raises:
        ValueError: a collector is configured, and OpenTelemetry not installed.
    """
    if not settings.otlp_endpoint:
        return Tracing()
    try:
        module = import_module("weft_core.otel")
    except ImportError as error:
        raise ValueError(f"telemetry.otlp_endpoint: this needs pip install 'weft[otel]' ({error})") from None
    opened: Tracing = module.OtelTracing(settings.otlp_endpoint, service)
    return opened
