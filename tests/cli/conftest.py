"""Fixtures that run ``weft`` in this process against a double of the server, and that make code to submit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from tests.cli.double import ID, Answer, Double, as_json, job, running

from weft.bundle import open_bundle
from weft.client import Client
from weft.main import app, main
from weft.profile import Server
from weft.transport.http import Transport
from weft.transport.transfer import download
from weft.ui import console

VALID = {"valid": True, "manifest": {"name": "mnist", "learners": 2, "resources": {"cpus": 1}}, "notes": ["a note"]}
COMPLETED = {"state": "COMPLETED", "reason": "completed", "ended_at": "2026-01-31T08:16:12Z"}


@pytest.fixture
def double() -> Iterator[Double]:
    with running() as server:
        yield server


@pytest.fixture
def transport(double: Double) -> Iterator[Transport]:
    """Signed in at the double; repeats at once."""
    made = Transport(Server(double.url, "weft_u_test"), sleep=lambda seconds: None)
    yield made
    made.close()


@pytest.fixture
def client(transport: Transport) -> Client:
    return Client(transport=transport)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a manifest and a script."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "manifest.yml").write_text("name: mnist\nlearners: 2\n")
    (folder / "train.py").write_text("print('hi')\n")
    return folder


@pytest.fixture
def server(double: Double) -> Double:
    """Takes any manifest and code; the job runs through to COMPLETED."""
    double.on("POST", "manifests:validate", as_json(VALID))
    double.on("POST", "jobs", as_json(job(state="QUEUED", reason=""), 201))
    double.on("GET", f"jobs/{ID}", as_json(job(**COMPLETED)))
    return double


def accept_code(double: Double, folder: Path, *, known: bool = False) -> str:
    """Let the double take this folder's bundle; its hash."""
    with open_bundle(folder, leave_out=folder / "manifest.yml") as bundle:
        assert bundle is not None
        double.on("HEAD", f"code/{bundle.sha256}", Answer(200 if known else 404))
        double.on("PUT", f"code/{bundle.sha256}", as_json({}, 201))
        return bundle.sha256


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Weft:
    """The ``weft`` command in this process, or another program; signed in at the double."""

    def __init__(self, capsys: pytest.CaptureFixture[str], program: typer.Typer = app, name: str = "weft") -> None:
        self._capsys = capsys
        self._program = program, name

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        # The consoles look at their streams once, and each test has streams of its own.
        console.out.cache_clear()
        console.err.cache_clear()
        code = main(list(arguments), *self._program)
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)


@pytest.fixture
def weft(double: Double, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Weft:
    monkeypatch.setenv("WEFT_URL", double.url)
    monkeypatch.setenv("WEFT_TOKEN", "weft_u_test")
    monkeypatch.setenv("WEFT_PROFILE_FILE", str(tmp_path / "profile" / "config.toml"))
    for waiting in (Transport.__init__, download):
        assert waiting.__kwdefaults__ is not None
        monkeypatch.setitem(waiting.__kwdefaults__, "sleep", lambda seconds: None)
    return Weft(capsys)
