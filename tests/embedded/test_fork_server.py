"""Parts that are forks of a process which has loaded their modules."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.embedded.helpers import wait_for

from weft_embedded.fork_server import Child, ForkServer

MODULES = {
    "part": """
import json, os, signal, sys
print("loaded", flush=True, file=open("loads", "a"))
def main():
    parent = os.getppid()
    print(json.dumps([parent, os.getsid(0), os.getcwd(), dict(os.environ), sys.argv]), flush=True)
    print("trouble", file=sys.stderr, flush=True)
    if sys.argv[1:] == ["wait"]:
        signal.pause()
    return 7
""",
    "broken": "1 / 0",
    "busy": """
import threading, time
threading.Thread(target=time.sleep, args=[600], daemon=True).start()
def main(): return 0
""",
}


class Server:
    """A fork server of a test, which waits until it has loaded."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        self.folder = folder
        self._server = ForkServer(modules, os.environ | {"PYTHONPATH": str(folder), "MARK": "this one"})

    def fork(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> Child | None:
        wait_for(lambda: not self._server.is_loading, "the fork server has loaded its modules")
        with (self.folder / "output").open("wb") as output, (self.folder / "errors").open("wb") as errors:
            files = output.fileno(), errors.fileno()
            return self._server.fork(module, arguments, environment or {}, self.folder, signal.SIGTERM, *files)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fork_is_what_a_program_would_be(folder: Path) -> None:
    server = Server(folder, ["part"])
    for _ in range(2):
        child = server.fork("part", "a", "b", environment={"NAME": "value"})
        assert child is not None
        assert child.wait() == child.poll() == 7
        child.send_signal(signal.SIGTERM)  # nothing is left that would get it
        said = json.loads((folder / "output").read_text())
        assert said == [os.getpid(), child.pid, str(folder), {"NAME": "value"}, ["part", "a", "b"]]
        assert (folder / "errors").read_text() == "trouble\n"
    server.close()
    assert (folder / "loads").read_text() == "loaded\n", "once for all"


def test_a_fork_outlives_the_fork_server(folder: Path) -> None:
    server = Server(folder, ["part"])
    child = server.fork("part", "wait")
    server.close()
    assert child is not None
    wait_for(lambda: (folder / "errors").read_text() != "", "it runs")
    assert b"MARK=this one" in Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0")
    assert child.poll() is None
    child.kill()
    assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize("modules", [["broken", "part"], ["busy", "part"], ["other", "part"]])
def test_a_fork_server_that_can_not_serve(folder: Path, modules: list[str]) -> None:
    """A module that fails or does not exist; a module that starts threads, beside which a fork is not safe."""
    server = Server(folder, modules)
    try:
        assert server.fork("part") is None
    finally:
        server.close()


def test_a_request_that_can_not_be_served(folder: Path) -> None:
    server = Server(folder, ["part"])
    try:
        assert server.fork("busy") is None, "not one of its modules"
        assert server.fork("part", environment={"LONG": "x" * (8 << 20)}) is None
    finally:
        server.close()
