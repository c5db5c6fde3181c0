"""Serving the dashboard: which URLs are pages, which stay the API's, and what headers they carry."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from weft_api.dashboard.routes import install

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Weft</title>")
    (tmp_path / "shell.html").write_text("<!doctype html><title>Shell</title>")
    (tmp_path / "assets/main-1a2b.js").write_text("plain")
    (tmp_path / "assets/main-1a2b.js.gz").write_bytes(b"packed")
    (tmp_path / "secret").write_text("not to be served")
    return tmp_path


def client(built: Path) -> TestClient:
    app = FastAPI()
    install(app, built)
    return TestClient(app)


def test_every_page_url_is_the_page(built: Path) -> None:
    http = client(built)
    for url in ("/", "/jobs/job-1/logs?line=3", "/compare", "/jobs/with.a.dot"):
        answer = http.get(url, headers=PAGE)
        assert answer.status_code == 200, url
        assert "<title>Weft</title>" in answer.text
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-cache"
    shell = http.get("/jobs/job-1/shell/2", headers=PAGE)
    assert "<title>Shell</title>" in shell.text
    assert shell.headers["Content-Security-Policy"].count("unsafe") == 1
    assert "script-src 'self';" in shell.headers["Content-Security-Policy"]
    # A path that the API does not have, a program's request and requests that change something are no pages.
    for url in ("/api/v1/nothing", "/v1/models/x", "/docs/nothing", "/healthz/x", "/assets/nothing.js"):
        assert http.get(url, headers=PAGE).status_code == 404, url
    assert http.get("/jobs/job-1", headers={"Accept": "*/*"}).status_code == 404
    assert http.post("/jobs/job-1", headers=PAGE).status_code == 404


def test_assets_are_kept_for_good_and_sent_packed(built: Path) -> None:
    http = client(built)
    packed = http.get("/assets/main-1a2b.js", headers={"Accept-Encoding": "identity"})
    assert packed.text == "plain"
    assert "immutable" in packed.headers["Cache-Control"]
    with http.stream("GET", "/assets/main-1a2b.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert b"".join(answer.iter_raw()) == b"packed"
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "javascript" in answer.headers["Content-Type"]
        assert answer.headers["Vary"] == "Accept-Encoding"
    for escape in ("/assets/../secret", "/assets/%2e%2e/secret", "/assets/..%2fsecret", "/assets//etc/passwd"):
        assert "not to be served" not in http.get(escape).text


def test_not_built_says_how(tmp_path: Path) -> None:
    answer = client(tmp_path).get("/", headers=PAGE)
    assert answer.status_code == 503
    assert "make dashboard" in answer.text
