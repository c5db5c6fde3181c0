"""A part by itself: it dies with its supervisor, and the processes of an earlier one are ended before it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.helpers import wait_for

from weft_embedded.home import Home
from weft_embedded.part import Part, PartError
from weft_embedded.processes import ProcessId

# Ignores SIGTERM, as does its child in the same session.
STUBBORN = (
    "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.fork(); print('up', flush=True); time.sleep(600)"
)


class Script(Part):
    name = "script"
    stop_grace = 0.2
    code = STUBBORN

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]

    def health(self) -> str | None:
        return None if self.log.exists() and self.log.read_text().count("up") >= 2 else "not up"


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    part = Script(tmp_path, tmp_path / "script.log")
    yield part
    part.stop()


def session(leader: int) -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.add(int(folder.name))
    return found


def test_stop_ends_children_that_ignore_the_signal(script: Script) -> None:
    script.start()
    leader = script.pid
    assert leader is not None
    assert len(session(leader)) == 2
    script.stop()
    assert session(leader) == set()


def test_a_leftover_is_ended_before_the_next_start(script: Script, tmp_path: Path) -> None:
    script.start()
    old = script.pid
    assert old is not None
    script.process = None  # as a supervisor that was killed
    other = Script(tmp_path, tmp_path / "script.log")
    other.start()
    try:
        assert session(old) == set()
        assert other.pid != old
    finally:
        other.stop()


def test_a_pid_that_belongs_to_someone_else_by_now_is_left_alone(script: Script, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        identity = ProcessId.of(stranger.pid)
        assert identity is not None
        ProcessId(identity.pid, identity.started - 1, identity.boot).save(tmp_path / "script.pid")
        assert script.end_leftover() is False
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    identity = ProcessId.of(pid)
    assert identity is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    wait_for(lambda: not identity.alive(), "the part died with its supervisor")


_SUPERVISOR = """
import sys, time
from pathlib import Path
from tests.embedded.test_part import Script
class Plain(Script):
    code = "import time; print('up up', flush=True); time.sleep(600)"
part = Plain(Path(sys.argv[1]), Path(sys.argv[1]) / "script.log")
part.start()
print(part.pid, flush=True)
time.sleep(600)
"""


def test_a_program_that_ends_says_why(tmp_path: Path) -> None:
    class Broken(Script):
        code = "raise SystemExit('no such disk')"

    with pytest.raises(PartError, match="script ended at once: no such disk"):
        Broken(tmp_path, tmp_path / "script.log").start()


def test_sockets_move_when_the_homes_path_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    short, long = Home(Path("/tmp/weft")), Home(tmp_path / ("x" * 100) / "home")
    assert short.sockets == short.run
    assert len(str(long.sockets) + "/.s.PGSQL.5432") <= 107
    assert long.sockets != Home(tmp_path / ("x" * 100) / "other").sockets
