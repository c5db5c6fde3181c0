"""Slow parts and stuck parts: the supervisor waits for the former, starts the latter again, and reports both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console
from tests.embedded.helpers import Weft, wait_for
from tests.servers import Servers, free_port

from weft_core.settings import S3Settings
from weft_embedded import supervisor, waiting
from weft_embedded.config import create_config, read_settings
from weft_embedded.home import Home, PartState
from weft_embedded.part import Part, PartError
from weft_embedded.processes import ProcessId
from weft_embedded.progress import Patience
from weft_embedded.screen import Screen
from weft_embedded.services import ApiService
from weft_embedded.stack import Choice, Stack
from weft_embedded.supervisor import Supervisor

# Each start leaves its time in a file; `up` in another one is the answer.
BEGIN = "import os, pathlib, signal, time\nwith open('starts', 'a') as file: print(time.monotonic(), file=file)\n"
ANSWER = "pathlib.Path('up').touch()\ntime.sleep(600)"
QUICK = BEGIN + ANSWER
COMPUTE = "sum(range(2_000_000)); time.sleep(0.1)\n"  # a tenth of a core, several times the use that counts as work
BUSY = BEGIN + f"end = time.monotonic() + 8\nwhile time.monotonic() < end: {COMPUTE}" + ANSWER
STUCK_TWICE = BEGIN + "if len(open('starts').readlines()) <= 2: os.kill(os.getpid(), signal.SIGSTOP)\n" + ANSWER


class Script(Part):
    """In the place of S3."""

    name = "s3"
    label = "S3"
    stop_grace = 0.2

    def __init__(self, code: str, folder: Path) -> None:
        super().__init__(folder, folder / "script.log")
        self.code = code

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]

    def health(self) -> str | None:
        return None if (self.run / "up").exists() else "not up"

    def starts(self) -> list[float]:
        return [float(line) for line in (self.run / "starts").read_text().splitlines()]


class Recorder(Screen):
    """Keeps the messages for people; when the stack is ready it does something, and then has it end."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(Console(quiet=True))
        self.lines: list[str] = []
        self._then = then

    def line(self, text: str, *, bad: bool = False) -> None:
        self.lines.append(text)
        if text.startswith("ready after"):
            threading.Thread(target=self._go_on).start()

    def _go_on(self) -> None:
        self._then()
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A stack of which the test says what runs in it."""
    for name in ("WEFT_CONFIG", "WEFT_HOME"):  # read_settings changes them
        monkeypatch.setenv(name, "")
    home = Home(tmp_path / "home")
    home.open()
    create_config(home)
    home.s3.mkdir()
    stack = Stack(home, read_settings(home), Choice(api=False, worker=False))
    monkeypatch.setattr(stack, "prepare_arguments", lambda what: ["this"])
    monkeypatch.setattr(stack, "make_bucket", lambda: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield stack
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(
    stack: Stack,
    part: Script,
    patience: float,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[], None] = lambda: None,
) -> tuple[list[str], PartState]:
    """Run a stack of this part until it is ready and ``then`` is done; what was said, and what is known of it."""
    part.start_patience = patience
    monkeypatch.setattr(stack, "servers", lambda: [part])
    screen = Recorder(then)
    Supervisor(stack, screen).run()
    return screen.lines, stack.home.load_state().parts[0]


def test_a_part_that_gets_on_is_waited_for_with_a_word(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_WORD", 1.0)
    part = Script(BUSY, tmp_path)
    lines, known = run(stack, part, 3.0, monkeypatch)
    assert known.restarts == 0
    assert len(part.starts()) == 1
    words = [line for line in lines if line.startswith("waiting for S3: ")]
    assert len(words) >= 2
    assert all(line.endswith(" s, it is starting up …") for line in words)


def test_a_part_that_is_stuck_is_started_again_with_more_patience(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Script(STUCK_TWICE, tmp_path)
    lines, known = run(stack, part, 1.0, monkeypatch)
    assert known.restarts >= 2
    first, second, third = part.starts()[:3]
    assert second - first > 1.0
    assert third - second > 2.0
    assert [line for line in lines if "has done nothing for 1 s and does not answer: not up; starting it again" in line]


def test_a_part_that_answers_is_never_ended(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_HEALTH", 1.0)
    part = Script(QUICK, tmp_path)

    def hold_it_up() -> None:
        pid = part.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        (tmp_path / "up").unlink()
        time.sleep(3)  # it is looked at every second
        os.kill(pid, signal.SIGCONT)

    lines, known = run(stack, part, 0.5, monkeypatch, hold_it_up)
    assert known.restarts == 0
    assert not [line for line in lines if "starting it again" in line]


SLOW_HTTP = """
import http.server, sys, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(2)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Slow).serve_forever()
"""


def test_an_answer_may_take_its_time(tmp_path: Path) -> None:
    port = free_port()

    class Slow(ApiService):
        def command(self) -> list[str]:
            return [sys.executable, "-c", SLOW_HTTP, str(port)]

    part = Slow(f"http://127.0.0.1:{port}", dict(os.environ), tmp_path, tmp_path / "api.log")
    part.start()
    try:
        assert part.pid is not None
    finally:
        part.stop()


def test_a_start_that_is_stuck_ends(tmp_path: Path) -> None:
    part = Script(STUCK_TWICE, tmp_path)
    part.start_patience = 0.5
    with pytest.raises(PartError, match="s3 does not answer: not up"):
        part.start()


def test_the_end_waits_for_what_gets_on(tmp_path: Path) -> None:
    """PostgreSQL writes a checkpoint, for instance; to be killed then costs a recovery."""
    code = "import signal, sys, time\n" + BEGIN + (
        "def end(*_):\n"
        "    stop = time.monotonic() + 3\n"
        f"    while time.monotonic() < stop: {COMPUTE}"
        "    pathlib.Path('ended').touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); pathlib.Path('up').touch()\n"
        "while True: time.sleep(1)"
    )  # fmt: skip
    part = Script(code, tmp_path)
    part.stop_grace = 1.0
    part.start()
    part.stop()
    assert (tmp_path / "ended").exists()
    (tmp_path / "ended").unlink()
    (tmp_path / "up").unlink()
    part.start()
    identity = ProcessId.load(tmp_path / "s3.pid")
    assert identity is not None
    identity.end(signal.SIGTERM, 1.0)  # as the next `weft up` does with what was left
    assert (tmp_path / "ended").exists()


GETS_ON = {
    "computes": f"import time\nwhile True: {COMPUTE}",
    "logs": "import time\nwhile True: time.sleep(0.2); print('step', flush=True)",
    "a child computes": f"import os, time\nif os.fork(): os.wait()\nwhile True: {COMPUTE}",
}
STANDS_STILL = {
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "waits": "import time; time.sleep(600)",
}


def test_what_getting_on_is(tmp_path: Path) -> None:
    """All of them at the same time, as each is watched for 8 s."""
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def watch(name: str, limit: float) -> Patience:
        return Patience(processes[name].pid, tmp_path / name, limit)

    try:
        for name, code in (GETS_ON | STANDS_STILL).items():
            with (tmp_path / name).open("wb") as output:
                processes[name] = subprocess.Popen([sys.executable, "-c", code], stdout=output)
        before = [watch(name, 2.0) for name in STANDS_STILL]
        wait_for(lambda: all(watched.is_over for watched in before), "they have done nothing for 2 s")
        patience = {name: watch(name, 4.0) for name in processes}
        longest = dict.fromkeys(patience, 0.0)
        over: set[str] = set()
        while any(watched.waited < 8 for name, watched in patience.items() if name not in over):
            for name, watched in patience.items():
                longest[name] = max(longest[name], watched.idle)
                if watched.is_over:
                    over.add(name)
            time.sleep(0.1)
        assert over == STANDS_STILL.keys(), longest
    finally:
        for process in processes.values():
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
            process.wait()


@pytest.fixture
def api_alone(servers: Servers, database_url: str, redis_url: str, s3: S3Settings, tmp_path: Path) -> Iterator[Weft]:
    """A home in which only the API is ours."""
    weft = Weft(
        tmp_path / "home",
        WEFT_DATABASE_URL=database_url,
        WEFT_REDIS_URL=redis_url,
        WEFT_S3__ENDPOINT=s3.endpoint,
        WEFT_S3__ACCESS_KEY=s3.access_key,
        WEFT_S3__SECRET_KEY=s3.secret_key.get_secret_value(),
        WEFT_S3__BUCKET=s3.bucket,
    )
    yield weft
    weft.run("down", "--grace", "0")


def stop_the_api(weft: Weft) -> dict[str, Any]:
    """SIGSTOP to the API while it starts, which takes it a second at least."""

    def api() -> dict[str, Any] | None:
        part = weft.parts().get("api")
        return part if part and part["pid"] else None

    wait_for(lambda: api() is not None, "the API is being started")
    found = api()
    assert found is not None
    assert found["state"] == "starting"
    os.kill(found["pid"], signal.SIGSTOP)
    return found


def detach(weft: Weft) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "weft_embedded",
            "up",
            "--detach",
            "--home",
            str(weft.home),
            "--port",
            "0",
            "--no-worker",
        ],
        env=weft.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_detach_says_what_it_waits_for_and_gets_there(api_alone: Weft) -> None:
    api_alone.environment["WEFT_STARTUP_PATIENCE"] = "5"
    with detach(api_alone) as process:
        stop_the_api(api_alone)
        said, trouble = process.communicate()
    assert process.returncode == 0, trouble
    assert "api has done nothing for 5 s and does not answer" in said
    assert api_alone.parts()["api"] | {"pid": 0, "log": ""} == {
        "name": "api", "state": "running", "pid": 0, "restarts": 1, "note": "", "log": ""
    }  # fmt: skip


def test_status_and_down_while_a_part_is_stuck(api_alone: Weft) -> None:
    api_alone.environment["WEFT_STARTUP_PATIENCE"] = "3600"
    with detach(api_alone) as process:
        stopped = stop_the_api(api_alone)
        wait_for(
            lambda: "done nothing" in api_alone.parts()["api"]["note"] or process.poll() is not None,
            "the state shows it",
        )
        [part] = json.loads(api_alone.run("status", "--json").stdout)["parts"]
        assert (part["name"], part["state"], part["pid"]) == ("api", "starting", stopped["pid"])
        down = api_alone.run("down")
        assert down.returncode == 0, down.stderr
        assert "api is stopped" in down.stdout
        process.communicate()
    assert process.returncode != 0
    assert api_alone.processes() == {}
