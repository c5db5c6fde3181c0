"""The learner's API as a small HTTP server: keeps the calls of agents, and fails where a test asks for it.

It also is the installation's own store: the "presigned" URLs it gives lead back to itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "weft_a_test"
_REPORTED = ("heartbeat", "logs", "metrics")
_PHASES = ["WAITING", "STARTED", "DOWNLOADING", "PROCESSING", "STORING", "EXITED"]


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str = "") -> None:
        self.status, self.code, self.detail = status, code, detail


class LearnerRecord:
    """What one rank has said so far."""

    def __init__(self) -> None:
        self.instance: str | None = None
        self.phases: list[str] = []
        self.messages: list[str] = []
        self.inputs: dict[str, Any] = {}
        self.address: dict[str, Any] | None = None
        self.lines: list[str] = []
        self.sequence = 0
        self.records: list[dict[str, Any]] = []
        self.records_sequence = 0
        self.heartbeats: list[dict[str, Any]] = []
        self.stacks: list[dict[str, Any]] = []
        self.exit: dict[str, Any] | None = None
        self.kept: Any = None
        self.storing: list[int] = []

    @property
    def printed(self) -> list[str]:
        """The program's lines. A download that takes seconds, as on a busy machine, adds lines about its progress."""
        return [line for line in self.lines if not line.startswith(("data: ", "pretrained model: "))]

    def points(self, name: str, group: str = "", kind: str = "user") -> list[tuple[Any, Any]]:
        """(step, value) of one series, in order of arrival."""
        return [
            (record["etimes"].get("iteration"), record["values"][name])
            for record in self.records
            if record["kind"] == kind and record["group"] == group and name in record["values"]
        ]

    @property
    def exit_reason(self) -> str:
        assert self.exit is not None, "it has not told its end"
        return str(self.exit["reason"])

    @property
    def phase(self) -> str:
        return self.phases[-1] if self.phases else "WAITING"


class ApiDouble:
    """Faults are attributes, which a test may change at any time. ``host``: where agents reach it."""

    def __init__(self, specs: dict[int, dict[str, Any]], host: str = "127.0.0.1", token: str = TOKEN) -> None:
        self.specs = specs
        self.token = token
        self.learners: defaultdict[int, LearnerRecord] = defaultdict(LearnerRecord)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, str]] = {}
        """Of multipart uploads: keys of their parts, by number."""
        self.stored: list[str] = []
        """Keys in the order in which they were put."""
        self.calls: Counter[str] = Counter()
        self.object_calls: Counter[tuple[str, str]] = Counter()
        """By space and operation."""
        self.problems: list[str] = []
        # faults
        self.away = False
        """Connections are dropped without an answer."""
        self.broken = False
        """Every answer is 503."""
        self.gone = False
        """Every answer is 410: the attempt is over."""
        self.lose: Counter[str] = Counter()
        """So many answers of this operation are lost, after it was done."""
        self.refuse: dict[str, Refused] = {}
        self.slow = 0.0
        self.store_away = False
        self.stop: dict[str, Any] | None = None
        """What heartbeats answer."""
        self._changed = threading.Condition()
        self._server = _Server((host, 0), _Handler)
        self._server.double = self
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @contextmanager
    def serving(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def wait_for(self, condition: Callable[[], bool], timeout: float = 600.0) -> None:
        """Until an agent has made ``condition`` true."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError(f"not within {timeout} s; so far: {dict(self.calls)}")

    def answer(self, operation: str, body: dict[str, Any]) -> Any:
        rank = int(body["rank"])
        learner = self.learners[rank]
        with self._changed:
            self.calls[operation] += 1
            if operation not in ("start", "logs", "metrics", "peers") and learner.instance != body["instance"]:
                self.problems.append(f"{operation} of another instance")
            try:
                handler = getattr(self, "_" + operation)
                return handler(rank, learner, body)
            finally:
                self._changed.notify_all()

    # --- operations ---

    def _start(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        if learner.instance not in (None, body["instance"]):
            raise Refused(409, "already_granted")
        if rank not in self.specs:
            raise Refused(410, "stale_attempt")
        if learner.instance is None:
            learner.instance = body["instance"]
            learner.phases.append("STARTED")
        return self.specs[rank]

    def _address(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        learner.address = {"address": body["address"], "ports": body["ports"]}

    def _peers(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        def known() -> bool:
            return all(self.learners[peer].address for peer in self.specs)

        self._changed.wait_for(known, float(body["wait"]))
        peers = [
            {"rank": peer, **(self.learners[peer].address or {}), "phase": self.learners[peer].phase}
            for peer in self.specs
            if self.learners[peer].address
        ]
        return {"ready": known(), "peers": peers}

    def _phase(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        learner.phases.append(body["phase"])
        if body.get("message"):
            learner.messages.append(body["message"])
        learner.inputs |= body.get("inputs") or {}
        learner.kept = body.get("kept") or learner.kept

    def _heartbeat(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        learner.heartbeats.append(body)
        return self.stop or {"stop": False, "grace_seconds": None}

    def _stacks(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        learner.stacks.append(body)

    def _logs(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        if body["sequence"] < learner.sequence:
            return
        if body["sequence"] > learner.sequence:
            self.problems.append(f"log batch {body['sequence']} of rank {rank} came, {learner.sequence} was next")
        learner.sequence += 1
        learner.lines += [line["s"] for line in body["lines"]]

    def _metrics(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        if body["sequence"] < learner.records_sequence:
            return
        if body["sequence"] > learner.records_sequence:
            self.problems.append(f"metrics {body['sequence']} of rank {rank} came, {learner.records_sequence} was next")
        learner.records_sequence += 1
        learner.records += body["records"]

    def _storing(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        if not learner.storing:
            learner.phases.append("STORING")
        learner.storing.append(body["exit_code"])
        others = [self.learners[peer] for peer in self.specs if peer != rank]
        if body["exit_code"] != 0:
            return {"granted": True, "wait": False}
        granted = all(other.phase == "EXITED" or (rank > 0 and other.storing) for other in others)
        return {"granted": granted, "wait": not granted}

    def _objects(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        space, keys = body["space"], body["keys"]
        self.object_calls[space, body["op"]] += 1
        if body["op"] == "list":
            prefix = f"{space}/{keys[0] if keys else ''}"
            found = {key: data for key, data in sorted(self.objects.items()) if key.startswith(prefix)}
            return {"objects": [{"key": key[len(space) + 1 :], "size": len(data)} for key, data in found.items()]}
        if body["op"] == "delete":
            for key in keys:
                self.objects.pop(f"{space}/{key}", None)
            return {"urls": {}}
        if body["op"] in ("begin", "parts", "complete", "abort"):
            return self._multipart(f"{space}/{keys[0]}", body)
        place = f"exit-{rank}" if space == "exit" else space
        return {"urls": {key: f"{self.url}/store/{place}/{quote(key)}?signature=x" for key in keys}}

    def _multipart(self, place: str, body: dict[str, Any]) -> Any:
        upload = body.get("upload") or f"upload-{len(self.uploads)}"
        parts = self.uploads.setdefault(upload, {})
        if body["op"] == "parts":
            for number in body["numbers"]:
                parts[number] = f"uploads/{upload}/{number}"
            return {"urls": {str(number): f"{self.url}/store/{parts[number]}" for number in body["numbers"]}}
        if body["op"] == "complete" and parts:
            pieces = [self.objects.pop(parts[number]) for number in sorted(parts)]
            assert len(pieces) == len(body["etags"])
            parts.clear()
            self.put_object(place, b"".join(pieces))
        elif body["op"] == "abort":
            for key in parts.values():
                self.objects.pop(key, None)
        return {"upload": upload}

    def _exit(self, rank: int, learner: LearnerRecord, body: dict[str, Any]) -> Any:
        learner.exit = body
        learner.phases.append("EXITED")

    # --- the store ---

    def put_object(self, key: str, data: bytes) -> None:
        with self._changed:
            self.objects[key] = data
            self.stored.append(key)
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    double: ApiDouble


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        self._api(json.loads(self._body()))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith("/store/"):
            self._store()
        else:
            self._api({name: values[0] for name, values in parse_qs(parts.query).items()})

    def do_PUT(self) -> None:
        self._store(self._body())

    def _api(self, body: dict[str, Any]) -> None:
        double = self.server.double
        operation = urlsplit(self.path).path.removeprefix("/api/v1/learner/")
        time.sleep(double.slow)
        if double.away:
            self.close_connection = True
            return
        if double.broken:
            return self._send(503, b"upstream is restarting")
        if double.gone:
            return self._problem(Refused(410, "stale_attempt"))
        if self.headers["Authorization"] != f"Bearer {double.token}":
            return self._problem(Refused(401, "unauthorized"))
        try:
            if operation in double.refuse:
                raise double.refuse[operation]
            answer = self._report(body) if operation == "report" else double.answer(operation, body)
        except Refused as refused:
            return self._problem(refused)
        done = {operation, *(body.keys() & set(_REPORTED) if operation == "report" else ())}
        lost = [name for name in done if double.lose[name] > 0]
        if lost:
            double.lose.subtract(lost)
            self.close_connection = True
            return None
        return self._send(204, b"") if answer is None else self._send(200, json.dumps(answer).encode())

    def _report(self, body: dict[str, Any]) -> dict[str, Any]:
        """Each part as the call of its name."""
        double = self.server.double
        double.calls["report"] += 1
        answer: dict[str, Any] = {"heartbeat": None, "refused": {}}
        for name in (name for name in _REPORTED if body.get(name) is not None):
            try:
                if name in double.refuse:
                    raise double.refuse[name]
                told = double.answer(name, {"rank": body["rank"], "instance": body["instance"], **body[name]})
            except Refused as refused:
                answer["refused"][name] = {"status": refused.status, "code": refused.code, "detail": refused.detail}
            else:
                answer |= {"heartbeat": told} if name == "heartbeat" else {}
        return answer

    def _store(self, data: bytes | None = None) -> None:
        double = self.server.double
        key = unquote(urlsplit(self.path).path.removeprefix("/store/"))
        if double.store_away:
            self.close_connection = True
        elif data is not None:
            double.put_object(key, data)
            self._send(200, b"")
        elif key in double.objects:
            self._send(200, double.objects[key])
        else:
            self._send(404, b"<Error/>")

    def _problem(self, refused: Refused) -> None:
        problem = {"status": refused.status, "code": refused.code, "title": "refused", "detail": refused.detail}
        self._send(refused.status, json.dumps(problem).encode())

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
