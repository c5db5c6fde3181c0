"""One trace from the request that submits a job to its learner's start grant, as a collector receives it."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.api.conftest import Api
from tests.workers.test_sweeper import until
from tests.workers.world import World

from weft_core.settings import Settings, TelemetrySettings
from weft_core.tracing import open_tracing
from weft_trainer.control import Control
from weft_trainer.service.client import ApiClient

_TRACE, _CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """OTLP over HTTP, as an OpenTelemetry collector takes it."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[str, Span]] = {}
        """By name: the service, and the span."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {
                        attribute.key: attribute.value.string_value for attribute in of_resource.resource.attributes
                    }
                    for of_scope in of_resource.scope_spans:
                        for span in of_scope.spans:
                            collector.spans[span.name] = named["service.name"], span
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.stop()


@pytest.fixture
def settings(settings: Settings, collector: Collector) -> Settings:
    return settings.model_copy(update={"telemetry": TelemetrySettings(otlp_endpoint=collector.url)})


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    running = Api(settings)
    yield running
    running.stop()


def test_one_trace_from_the_request_to_the_learners_start(
    api: Api, world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = api.person()
    answer = ann.http.post(
        "/api/v1/jobs",
        json={"manifest": "name: hello\nframework: {name: pytorch, command: echo hello}\n"},
        headers={"traceparent": f"00-{_TRACE}-{_CALLER}-01"},
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()["id"]
    world.step(job, 2)
    (spec,) = world.engine.launches
    assert spec.traceparent is not None
    # The agent's own client, in the environment that an engine makes of the spec.
    monkeypatch.setenv("TRACEPARENT", spec.traceparent)
    ApiClient(api.url, spec.token, 0, "3f2b8c1e-0000-4000-8000-000000000000", Control()).start("here")
    ann.http.get("/api/v1/me", headers={"traceparent": "not a traceparent"})
    world.context.tracing.flush()
    spans = collector.spans

    def last_is_told() -> bool:
        api.context.tracing.flush()  # a request's span ends after its answer
        return "GET /api/v1/me" in spans

    until(last_is_told)
    submit, grant = "POST /api/v1/jobs", "POST /api/v1/learner/start"
    above = {
        submit: bytes.fromhex(_CALLER),
        "admission wait": spans[submit][1].span_id,
        "launch": spans[submit][1].span_id,
        "start learner": spans[submit][1].span_id,
        grant: spans["launch"][1].span_id,
    }
    assert {name: spans[name][1].parent_span_id for name in above} == above
    assert {spans[name][1].trace_id for name in above} == {bytes.fromhex(_TRACE)}
    assert {name: spans[name][0] for name in above} == {
        submit: "weft-api",
        "admission wait": "weft-worker",
        "launch": "weft-worker",
        "start learner": "weft-api",
        grant: "weft-api",
    }
    for name in above:
        assert 0 < spans[name][1].start_time_unix_nano <= spans[name][1].end_time_unix_nano
    told = {attribute.key: attribute.value for attribute in spans["launch"][1].attributes}
    assert (told["weft.job"].string_value, told["weft.attempt"].int_value) == (job, 1)
    assert spans["GET /api/v1/me"][1].trace_id != bytes.fromhex(_TRACE)
    assert not [name for name in spans if "heartbeat" in name]


def test_without_a_collector_nothing_of_it_is_imported() -> None:
    script = (
        "import sys; from weft_core.settings import TelemetrySettings; from weft_core.tracing import open_tracing\n"
        "import weft_api.app, weft_workers.context\n"
        "with open_tracing(TelemetrySettings(), 'weft-api').span('x', None) as place: assert place is None\n"
        "wanted = ('opentelemetry.exporter', 'weft_core.tracing.otel')\n"
        "print([name for name in sys.modules if name.startswith(wanted)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_collector_without_the_extra_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weft_core.tracing.otel", None)
    with pytest.raises(ValueError, match=r"telemetry\.otlp_endpoint: this needs pip install 'weft\[otel\]'"):
        open_tracing(TelemetrySettings(otlp_endpoint="http://127.0.0.1:4318"), "weft-api")
