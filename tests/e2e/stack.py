"""A whole stack, started and driven as a user does: `weft up`, the `weft` command, and the library."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml
from tests.processes import all_processes

from weft import Client, Job, LogLine
from weft_embedded.home import Home

T = TypeVar("T")
PROGRAMS = Path(__file__).parent / "programs"
REPOSITORY = Path(__file__).parents[2]
# Read at import, as the tests' own fixtures take WEFT_… out of the environment.
ENVIRONMENTS = os.environ.get("WEFT_ENVIRONMENTS_DIR", str(Path.home() / ".cache/weft/environments"))


def eventually(condition: Callable[[], T | None], what: str, seconds: float = 600) -> T:
    """The first true value of ``condition()``; fails after a time that is generous on any machine."""
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < seconds:
        value = condition()
        if value:
            return value
        time.sleep(min(max(0.1, 0.05 * waited), 1))  # asking takes CPU time from what is waited for
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def manifest(command: str, **changes: Any) -> dict[str, Any]:
    """A manifest for a plain command, with results in the embedded S3; ``changes`` replace or add fields."""
    base: dict[str, Any] = {
        "name": "test",
        "learners": 1,
        "cpus": 0.5,
        "memory": "512 MiB",
        "framework": {"name": "python", "version": "3.11", "command": command},
        "data_stores": [{"id": "s3", "datastore": "default", "training_results": {"container": "results"}}],
    }
    return base | changes


class Stack:
    """One home with its `weft up`."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.profile = home / "profile.toml"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "DLAAS_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WEFT_PROFILE_FILE": str(self.profile),
            "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
            **(environment or {}),
        }
        self._clients: dict[tuple[str, str], Client] = {}

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        port = () if (self.home / "weft.toml").exists() else ("--port", "0")
        return self.weft("up", "--detach", "--home", str(self.home), *port, *arguments)

    def down(self) -> None:
        self.weft("down", "--home", str(self.home))

    def weft(self, *arguments: str, check: bool = True, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run the `weft` command."""
        done = subprocess.run(
            ["weft", *arguments], env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"weft {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.weft(*arguments, "--json").stdout)

    @property
    def client(self) -> Client:
        """The client of this stack; there is one for each profile that `weft up` has written, as making one is slow."""
        profile = tomllib.loads(self.profile.read_text())["profiles"]["default"]
        key = (profile["url"], profile["token"])
        if key not in self._clients:
            self._clients[key] = Client(*key)
        return self._clients[key]

    def train(self, job: Mapping[str, Any], code: Path | None = PROGRAMS) -> Job:
        return self.client.train(job, code)

    def write(self, folder: Path, job: Mapping[str, Any]) -> Path:
        """``job`` as a manifest file in ``folder``, for the command line."""
        path = folder / "manifest.yml"
        path.write_text(yaml.safe_dump(dict(job)))
        return path

    def parts(self) -> dict[str, int]:
        """The pid of each part of the stack that has one, the supervisor's as 'weft'."""
        state = Home(self.home).load_state()
        assert state.supervisor is not None
        return {"weft": state.supervisor.pid, **{part.name: part.pid for part in state.parts if part.pid}}

    def kill(self, *parts: str) -> None:
        """kill -9 of these parts, at once."""
        pids = self.parts()
        for part in parts:
            os.kill(pids[part], signal.SIGKILL)

    def kill_and_await(self, *parts: str) -> None:
        """kill -9 of these parts; returns when the new ones answer that the supervisor has started."""
        before = self.parts()
        self.kill(*parts)

        def answer() -> bool:
            found = [part for part in Home(self.home).load_state().parts if part.name in parts]
            return all(part.state == "running" and part.pid != before[part.name] for part in found)

        eventually(answer, f"new {', '.join(parts)}")

    def processes(self) -> list[psutil.Process]:
        """Every process that has to do with this home: the stack's, learners', and what those started."""

        def ours(process: psutil.Process) -> bool:
            words = (*process.cmdline(), process.cwd(), *process.environ().values())
            return process.pid != os.getpid() and any(str(self.home) in word for word in words)

        return alive(all_processes(), ours)

    def learners(self) -> list[psutil.Process]:
        """Processes that run in a learner's folder."""
        return alive(self.processes(), lambda process: "/runs/" in process.cwd())


def alive(processes: Iterable[psutil.Process], wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """The processes that are ``wanted``, without those that end while they are looked at."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if wanted(process):
                found.append(process)
    return found


def lines(job: Job, learner: int = 1) -> list[str]:
    """What one learner has logged."""
    return [line.text for line in job.logs(learner=learner)]


def series(stack: Stack, job: Job, kind: str = "user") -> dict[tuple[str, int], dict[str, Any]]:
    """A job's metrics by displayed name and learner."""
    answer = stack.client._transport.json("GET", f"/jobs/{job.id}/metrics", params={"kind": kind})
    return {(metric["name"], metric["learner"]): metric for metric in answer["series"]}


def saw(job: Job, text: str, learner: int = 1) -> Callable[[], bool]:
    return lambda: any(text in line for line in lines(job, learner))


def follow_to(job: Job, *patterns: str, learner: int = 1, attempt: int | None = None) -> None:
    """Follow a learner's log until lines that fit these regular expressions have come, in this order."""
    sought = list(patterns)
    for line in job.follow_logs(learner=learner, attempt=attempt):
        if isinstance(line, LogLine) and re.search(sought[0], line.text):
            del sought[0]
            if not sought:
                return
    job = job.refresh()
    raise AssertionError(f"{job.id} is {job.state}, and learner {learner} has not said {sought[0]!r}: {job.reason}")


def local_engine(factory: pytest.TempPathFactory, **changes: Any) -> dict[str, Any]:
    """Settings of a local engine whose programs see the tests' folders: they wait for files there. Of the stack's home
    in there they see nothing but their own."""
    return {"type": "local", "host_mounts": [str(factory.getbasetemp())], **changes}


@contextmanager
def running(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A stack that is up; taken down at the end, after which no process of it may be left."""
    stack = Stack(home, environment)
    stack.up()
    stack.client.data.create("default:results")
    try:
        yield stack
    finally:
        stack.down()
    eventually(lambda: not stack.processes(), f"processes left behind: {stack.processes()}")


def embedded_s3(stack: Stack) -> dict[str, str]:
    """The address and the credentials of a stack's store, as environment variables."""
    kept = tomllib.loads((stack.home / "weft.toml").read_text())["s3"]
    exported = subprocess.run(
        [sys.executable, "-m", "weft_embedded", "env", "--home", str(stack.home)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {
        "AWS_ENDPOINT_URL": re.findall(r"export WEFT_S3__ENDPOINT='?([^'\n]*)'?", exported)[0],
        "AWS_ACCESS_KEY_ID": kept["access_key"],
        "AWS_SECRET_ACCESS_KEY": kept["secret_key"],
    }
