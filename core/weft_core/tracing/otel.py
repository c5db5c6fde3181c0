"""Traces by OpenTelemetry's SDK, sent as OTLP over HTTP; imported only if a collector is configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from weft_core import __version__
from weft_core.tracing.spans import Attribute, Tracing

_DELAY = 1000  # milliseconds; short, because a process of the pool may be killed without notice
_WAIT = 5000  # milliseconds


class OtelTracing(Tracing):
    """Sends spans in the background. If the collector does not answer, spans are lost, but no request or step fails.

    Args:
        endpoint: the collector's base URL; spans are posted to ``/v1/traces`` below it.
        service: name of the service in the traces.
    """

    def __init__(self, endpoint: str, service: str) -> None:
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces", timeout=5)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service, "service.version": __version__})
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_DELAY))
        self._tracer = self._provider.get_tracer("weft", __version__)
        self._form = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[dict[str, Attribute]]:
        added: dict[str, Attribute] = {}
        above = self._form.extract({"traceparent": headers.get("traceparent", "")})
        with self._tracer.start_as_current_span(method, context=above, kind=SpanKind.SERVER) as span:
            try:
                yield added
            finally:
                span.set_attributes({"http.request.method": method, **added})
                if route := added.get("http.route"):
                    span.update_name(f"{method} {route}")
                if int(added.get("http.response.status_code", 0)) >= 500:
                    span.set_status(StatusCode.ERROR)

    @contextmanager
    def span(self, name: str, parent: str | None, **attributes: Attribute) -> Iterator[str | None]:
        if parent is None:
            yield None
            return
        above = self._form.extract({"traceparent": parent})
        with self._tracer.start_as_current_span(name, context=above, attributes=_named(attributes)):
            yield self.here()

    def record(self, name: str, parent: str | None, start: datetime, end: datetime, **attributes: Attribute) -> None:
        if parent is None:
            return
        above = self._form.extract({"traceparent": parent})
        span = self._tracer.start_span(
            name, context=above, attributes=_named(attributes), start_time=int(start.timestamp() * 1e9)
        )
        span.end(int(end.timestamp() * 1e9))

    def here(self) -> str | None:
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        self._form.inject(carrier)
        return carrier.get("traceparent")

    def flush(self) -> None:
        self._provider.force_flush(_WAIT)

    def close(self) -> None:
        self._provider.shutdown()


def _named(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """With our prefix, because the attributes of all programs share one namespace."""
    return {f"weft.{name}": value for name, value in attributes.items()}
