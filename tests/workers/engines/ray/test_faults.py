"""Faults that a real Ray can't be made to show: a scripted one answers late, not at all, with errors, with nonsense."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from weft_core.engine import EngineUnreachable, LearnerState
from weft_core.engine_settings import RaySettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.ray import RayEngine

TOKEN = "the-token"
SPEC = LaunchSpec(
    "weft-job-a-1", "inst", "prj", "job-a", 1, 2, Resources(1, 0, 1 << 30), "python:3.11", "http://api", "weft_a_x"
)
PLACED = {"state": "RUNNING", "node": "n1", "node_id": "abc"}


class Script:
    """A Ray dashboard of jobs and packages; its attributes are its faults."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.packages: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.answer: tuple[int, bytes] | None = None
        """What all get that show the token."""
        self.slow_create = 0.0
        """Seconds that an answer to POST takes, after it was obeyed."""
        self.actors: list[dict[str, Any]] = []
        self.address = ""

    def handle(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.calls.append((method, path.partition("?")[0]))
        if self.answer:
            return self.answer
        if path.startswith("/api/packages/gcs/"):
            name = path.rpartition("/")[2]
            if method == "PUT":
                self.packages[name] = body
            return (200, b"") if name in self.packages else (404, b"no such package")
        if path.startswith("/api/v0/actors"):
            return 200, json.dumps({"data": {"result": {"result": self.actors}}}).encode()
        name = path.removeprefix("/api/jobs/").partition("/")[0]
        if method == "POST" and not name:
            return self._create(json.loads(body))
        if not name:
            return 200, json.dumps(list(self.jobs.values())).encode()
        if name not in self.jobs:
            return 404, b"no such job"
        if method == "DELETE":
            del self.jobs[name]
            return 200, b"{}"
        return 200, json.dumps(self.jobs[name]).encode()

    def _create(self, job: dict[str, Any]) -> tuple[int, bytes]:
        name = job["submission_id"]
        if name in self.jobs:
            return 500, f"Traceback\nValueError: Job with submission_id {name} already exists.".encode()
        self.jobs[name] = {**job, "type": "SUBMISSION", "status": "PENDING", "job_id": None}
        time.sleep(self.slow_create)
        return 200, b"{}"

    def says(self, learners: list[dict[str, Any]], **status: Any) -> None:
        """What the driver of SPEC's run has published."""
        job = self.jobs[SPEC.run_name]
        job["metadata"]["weft_status"] = json.dumps({"learners": learners, **status})
        job["status"] = "RUNNING"


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.headers["Authorization"] == f"Bearer {TOKEN}":
                status, data = made.handle(self.command, self.path, body)
            else:
                status, data = 401, b"Unauthorized"
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def _engine(script: Script, **settings: Any) -> RayEngine:
    return RayEngine("ray", RaySettings.model_validate({"address": script.address, "token": TOKEN, **settings}), "inst")


@pytest.fixture
def engine(script: Script) -> RayEngine:
    return _engine(script)


def test_a_create_that_is_answered_too_late_is_adopted(script: Script) -> None:
    engine = _engine(script)
    engine.observe()
    script.slow_create = 2.0
    with pytest.raises(EngineUnreachable, match=r"no answer within 0\.5 s"):
        _engine(script, timeout=0.5).launch(SPEC)
    engine.launch(SPEC)
    assert script.calls.count(("POST", "/api/jobs/")) == 1
    assert list(engine.observe()) == [SPEC.run_name]


def test_a_create_that_another_worker_was_faster_with(
    script: Script, engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.launch(SPEC)
    there = script.jobs.pop(SPEC.run_name)
    submit = engine._ray.submit

    def late(job: Any) -> bool:
        script.jobs[SPEC.run_name] = there
        return submit(job)

    monkeypatch.setattr(engine._ray, "submit", late)
    engine.launch(SPEC)
    there["metadata"]["job_id"] = "job-b"
    with pytest.raises(EngineUnreachable, match=r"of another job_id \(job-b, not job-a\)"):
        engine.launch(SPEC)


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"Traceback (most recent call last):\nRuntimeError: no agent"),
        (502, b"<html>"),
        (200, b"<html>Welcome"),
        (200, b"null"),
        (200, b"[1, 2]"),
        (200, b'{"data": {}}'),
        (200, b'[{"submission_id": "weft-x", "metadata": 7}]'),
        (302, b""),
    ],
    ids=["500", "502", "html", "null", "numbers", "object", "odd job", "redirect"],
)
def test_nonsense_is_unreachable_and_does_no_harm(script: Script, engine: RayEngine, answer: tuple[int, bytes]) -> None:
    script.answer = answer
    for ask in (
        engine.capacity,
        lambda: engine.launch(SPEC),
        *(() if b"metadata" in answer[1] else (engine.observe,)),
    ):
        with pytest.raises(EngineUnreachable, match="engine ray: Ray at http://") as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert SPEC.token not in str(caught.value)
    assert not script.jobs


def test_nobody_there() -> None:
    engine = RayEngine("ray", RaySettings(address="http://127.0.0.1:9", token=TOKEN), "inst")
    with pytest.raises(EngineUnreachable, match=r"Ray at http://127\.0\.0\.1:9: .*refused"):
        engine.observe()
    settings = {"address": "https://127.0.0.1:9", "token": TOKEN, "ca_file": "/nowhere.pem"}
    engine = RayEngine("ray", RaySettings.model_validate(settings), "inst")
    with pytest.raises(EngineUnreachable, match=r"ca_file /nowhere\.pem can't be used"):
        engine.observe()


def test_the_agent_is_uploaded_once_and_the_token_in_no_job(script: Script, engine: RayEngine) -> None:
    engine.launch(SPEC)
    uploads = [path for method, path in script.calls if method == "PUT"]
    _engine(script).launch(LaunchSpec(**{**vars(SPEC), "run_name": "weft-job-b-1", "job_id": "job-b"}))
    assert len([path for method, path in script.calls if method == "PUT"]) == len(uploads) + 1
    assert SPEC.token not in json.dumps(script.jobs)


@pytest.mark.parametrize(
    ("job", "failed", "interrupted"),
    [
        ({"error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": "runtime_env setup failed: no disk"}, True, False),
        (
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": 127, "message": "python: not found"},
            True,
            False,
        ),
        ({"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": -9, "message": "killed"}, False, True),
        (
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": 75, "message": "GCS does not answer"},
            False,
            True,
        ),
        (
            {
                "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
                "driver_exit_code": 1,
                "message": "rpc_client.h:204: Failed to connect to GCS within 60 seconds. GCS may have been killed.",
            },
            False,
            True,
        ),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": "the head went away"}, False, True),
        ({"status": "STOPPED", "message": "Job was intentionally stopped."}, False, True),
    ],
)
def test_drivers_that_end_before_they_begin(
    script: Script, engine: RayEngine, job: dict[str, Any], failed: bool, interrupted: bool
) -> None:
    engine.launch(SPEC)
    script.jobs[SPEC.run_name] |= {"status": "FAILED", **job}
    seen = engine.observe()[SPEC.run_name]
    assert bool(seen.failed) is failed
    if failed:
        assert seen.failed == f"its driver could not start on the Ray cluster: {job['message']}"
        assert not seen.learners
    else:
        assert seen.gone
        assert [learner.interrupted for learner in seen.learners.values()] == [interrupted] * 2


def test_actors_that_outlive_their_driver_are_not_called_dead(script: Script, engine: RayEngine) -> None:
    engine.launch(SPEC)
    script.says([PLACED, PLACED])
    script.jobs[SPEC.run_name] |= {"status": "FAILED", "job_id": "01", "error_type": "JOB_SUPERVISOR_ACTOR_DIED"}
    script.actors = [{"name": f"{SPEC.run_name}-1", "job_id": "01"}, {"name": f"{SPEC.run_name}-0", "job_id": "02"}]
    seen = engine.observe()[SPEC.run_name].learners
    assert [(learner.state, learner.interrupted) for learner in seen.values()] == [
        (LearnerState.EXITED, True),
        (LearnerState.RUNNING, False),
    ]
    engine.stop(SPEC.run_name, timedelta(0))
    assert SPEC.run_name in engine.observe()
    script.actors = []
    deadline = time.monotonic() + 30
    while SPEC.run_name in engine.observe():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert not script.jobs


def test_a_node_that_does_not_answer_is_unreachable(script: Script, engine: RayEngine) -> None:
    engine.launch(SPEC)
    script.says([PLACED, {**PLACED, "unreachable": True, "reason": "its node does not answer"}])
    seen = engine.observe()[SPEC.run_name].learners
    assert [learner.unreachable for learner in seen.values()] == [False, True]
    assert seen[1].reason == "its node does not answer"


def test_ghosts_of_deleted_jobs_are_removed(script: Script, engine: RayEngine) -> None:
    ghost = {"submission_id": "weft-job-x-1", "entrypoint": "Entrypoint not found.", "metadata": None}
    others = {"submission_id": "theirs", "entrypoint": "python x.py", "metadata": None}
    script.jobs = {"weft-job-x-1": ghost, "theirs": others}
    assert engine.observe() == {}
    assert list(script.jobs) == ["theirs"]
