"""The ``weft`` command in a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.double import Answer, Double, Seen, as_json, events, job, line_events
from tests.cli.engines import AWAY, CLUSTER, CLUSTER_NODES, LOCAL, QUEUE

ID = "job-4k9x2m7qd1ze"


class Terminal:
    """A `weft` process in a pseudo-terminal of its own."""

    def __init__(self, double: Double, folder: Path, *arguments: str, columns: int = 80, **environment: str) -> None:
        self.output = ""
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from weft.main import run; run()", *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            # In a shell's background job SIGINT is ignored, and the programs that it starts would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env=inherited
            | {"WEFT_URL": double.url, "WEFT_TOKEN": "weft_u_test", "TERM": "xterm-256color", "HOME": str(folder)}
            | {"WEFT_PROFILE_FILE": str(folder / "none.toml")}
            | environment,
        )
        os.close(terminal)
        self._controller = controller
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._controller, 65536)
            except OSError:  # the process has closed its side
                piece = b""
            with self._changed:
                self.output += piece.decode(errors="replace")
                self._changed.notify_all()
            if not piece:
                return

    def until(self, seen: Callable[[str], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: seen(self.output), timeout=300), self.output

    def end(self) -> int:
        code = self.process.wait(300)
        self._reader.join(10)
        os.close(self._controller)
        return code


def test_colours_in_a_terminal_and_none_with_no_color(double: Double, tmp_path: Path) -> None:
    double.on("GET", "jobs", as_json({"jobs": [job(state="COMPLETED")], "next_cursor": None}))
    coloured = Terminal(double, tmp_path, "list")
    assert coloured.end() == 0
    assert "\x1b[1;32mCOMPLETED" in coloured.output
    plain = Terminal(double, tmp_path, "list", NO_COLOR="1")
    assert plain.end() == 0
    assert "COMPLETED" in plain.output
    assert "\x1b[1;32m" not in plain.output


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_fits_its_terminal(double: Double, tmp_path: Path, columns: int) -> None:
    long = job(name="a very long name " * 3, state="DOWNLOADING", reason="why " * 100)
    double.on("GET", "jobs", as_json({"jobs": [long, job()], "next_cursor": None}))
    terminal = Terminal(double, tmp_path, "list", columns=columns, NO_COLOR="1")
    assert terminal.end() == 0
    rows = [re.sub(r"\x1b\[[0-9;]*m|\r", "", row) for row in terminal.output.splitlines() if "job-" in row]
    assert len(rows) == 2
    assert all(ID in row and len(row) <= columns for row in rows), rows
    assert "DOWNLOADING" in rows[0]
    assert ("why why" in rows[0]) == (columns == 120)


@pytest.mark.slow
def test_what_a_program_has_written_has_no_power(double: Double, tmp_path: Path) -> None:
    """Its last words stand in its job's reason, and it names its files as it likes."""
    words = "\x1b]0;mine\x07\x1b[2J\x1b[31mlast\x1b[0m \x1b[?1049hwords\x9b5A"
    double.on("GET", f"jobs/{ID}", as_json(job(state="FAILED", reason=f"learner 1: exit code 1\n{words}")))
    double.on("GET", "jobs", as_json({"jobs": [job(state="FAILED", name=words)], "next_cursor": None}))
    for arguments, seen in ((("show", ID), "last words"), (("list",), ID), (("show", words), "last words")):
        terminal = Terminal(double, tmp_path, *arguments, columns=160, NO_COLOR="1")
        terminal.end()
        assert seen in terminal.output
        assert not [
            sequence
            for sequence in ("\x1b]", "\x1b[2J", "\x1b[?", "\x1b[3", "\x07", "\x9b")
            if sequence in terminal.output
        ]


def test_ctrl_c_stops_following_only(double: Double, tmp_path: Path) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    released = threading.Event()

    def stream(seen: Seen) -> Answer:
        if "last-event-id" in seen.headers:
            released.wait(60)  # a server that has no more to say for now
        return events(*line_events(range(3)), cut=10_000)

    double.on("GET", f"jobs/{ID}/logs/follow", stream)
    terminal = Terminal(double, tmp_path, "logs", "--follow", ID)
    terminal.until(lambda output: "line 2" in output)
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 130
    released.set()
    assert f"weft logs --follow {ID}" in terminal.output
    assert f"weft halt {ID}" in terminal.output
    assert "Traceback" not in terminal.output
    assert not any(seen.method in ("POST", "DELETE") for seen in double.seen)
    # Each learner has a colour of its own.
    assert "\x1b[36m[1]\x1b[0m line 0" in terminal.output


def test_an_upload_shows_a_bar(double: Double, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"x" * 3_000_000)
    gate = threading.Event()
    url = f"{double.url}/part/1"
    double.on(
        "POST",
        "datastores/default/uploads",
        as_json({"parts": [{"number": 1, "url": url, "size": 3_000_000}], "upload_id": None}),
    )

    def part(seen: Seen) -> Answer:
        gate.wait(60)
        return Answer(200, b"", {"ETag": "t"})

    double.on("PUT", "/part/1", part)
    terminal = Terminal(double, tmp_path, "data", "put", str(source), "box/")
    terminal.until(lambda output: "2.9/2.9 MiB" in output)
    gate.set()
    assert terminal.end() == 0
    assert "━" in terminal.output
    assert "1 file, 2.9 MiB → default:box" in terminal.output


def test_a_closed_pipe_is_no_error_message(double: Double, tmp_path: Path) -> None:
    jobs = [job(id=f"job-{n:012}", name="n" * 60) for n in range(500)]
    double.on("GET", "jobs", as_json({"jobs": jobs, "next_cursor": None}))
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "from weft.main import run; run()" list --all | head -1', sys.executable],
        env={**os.environ, "WEFT_URL": double.url, "WEFT_TOKEN": "t", "WEFT_PROFILE_FILE": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("ID")
    assert done.stderr == ""


@pytest.mark.parametrize("columns", [80, 140])
def test_engines_fit_the_terminal(double: Double, tmp_path: Path, columns: int) -> None:
    double.on("GET", "engines", as_json({"engines": [LOCAL, CLUSTER, AWAY]}))
    nodes = [CLUSTER_NODES[0] | {"name": f"n{n}"} for n in range(500)]
    double.on("GET", "engines/gpu", as_json(CLUSTER | QUEUE | {"nodes": nodes}))
    for arguments in (["engines"], ["engines", "gpu"]):
        lines = ran(double, tmp_path, *arguments, columns=columns)
        assert max(map(len, lines)) <= columns
        assert not [line for line in lines if line.count("…") > 1], "nothing is cut"
        if arguments == ["engines"]:
            assert [line.split()[0] for line in lines[1:4]] == ["local", "gpu", "ray"]
            assert "51.2/192" in lines[2]
            assert ("█" in lines[2]) == (columns == 140), "bars where there is room"
        else:
            assert any("and 470 more nodes" in line for line in lines)
            assert any("waits in Kueue's queue a" in line for line in lines)


def ran(double: Double, folder: Path, *arguments: str, columns: int) -> list[str]:
    """The lines of a command that ends by itself, without colours."""
    terminal = Terminal(double, folder, *arguments, columns=columns)
    assert terminal.end() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.output).replace("\r", "").rstrip().split("\n")
