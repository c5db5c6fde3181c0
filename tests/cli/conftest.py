"""A double of the server, a transport to it that does not wait, and the command run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from tests.cli.double import Double, running

from weft.client import Client
from weft.http import Transport
from weft.main import app, main
from weft.profile import Server
from weft.transfer import download
from weft.ui import console


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
        monkeypatch.setitem(waiting.__kwdefaults__, "sleep", lambda seconds: None)
    return Weft(capsys)
