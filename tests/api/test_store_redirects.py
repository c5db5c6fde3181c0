"""A user's S3 endpoint that redirects every request: nothing is followed, and nothing is an error of the server's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.api.conftest import Api, Person

from weft_api.storage.checker import Checker
from weft_core.settings import OutgoingSettings, Settings


@pytest.fixture(scope="module")
def api(api_settings: Settings) -> Iterator[Api]:
    """An installation whose administrator has listed this machine."""
    running = Api(api_settings.model_copy(update={"outgoing": OutgoingSettings(allow=["127.0.0.1"])}))
    yield running
    running.stop()


class _Redirects(BaseHTTPRequestHandler):
    def _redirect(self) -> None:
        assert isinstance(self.server, _Server)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(302)
        # A region, too: boto asks the store of another region again.
        self.send_header("x-amz-bucket-region", "eu-west-1")
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()
        if self.path.startswith("/elsewhere"):
            self.server.followed.append(self.path)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _redirect  # noqa: N815

    def log_message(self, *_: object) -> None: ...


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Redirects)
        self.followed: list[str] = []


@pytest.fixture
def redirecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    monkeypatch.setattr(Checker, "PATIENCE", 60.0)  # however busy the machine is
    server = _Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


_MANIFEST = """
name: redirected
framework: {name: pytorch, command: echo}
data_stores:
  - id: store
    datastore: cos
    training_data: {container: digits}
"""


def test_every_call_about_it_is_refused(api: Api, ann: Person, redirecting: _Server) -> None:
    store = {"endpoint": f"http://127.0.0.1:{redirecting.server_port}", "user_name": "u", "password": "p"}
    saved = ann.http.post("/api/v1/datastores?check=false", json={**store, "name": "cos"})
    assert saved.status_code == 201, saved.text
    place = {"container": "digits", "key": "train.gz"}
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/datastores", {**store, "name": "other"}),
        ("PUT", "/datastores/cos", store),
        ("GET", "/datastores/cos/objects", None),
        ("GET", "/datastores/cos/objects?container=digits", None),
        ("PUT", "/datastores/cos/containers/digits", None),
        ("POST", "/datastores/cos/uploads", {**place, "size": 1, "create_container": True}),
        ("POST", "/datastores/cos/uploads", {**place, "size": 1 << 30}),
        ("POST", "/datastores/cos/uploads:complete", {**place, "upload_id": "u", "etags": ["e"]}),
        ("POST", "/datastores/cos/downloads", place),
        ("POST", "/jobs", {"manifest": _MANIFEST}),
    ]
    for method, path, body in calls:
        answer = ann.http.request(method, f"/api/v1{path}", json=body)
        assert answer.status_code == 400, f"{method} {path}: {answer.text}"
        assert answer.json()["code"] in ("store_refused", "invalid_manifest"), answer.text
    assert redirecting.followed == []
