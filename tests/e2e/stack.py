"""A whole stack, started and driven as a user does: `weft up`, the `weft` command, and the library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import yaml

from weft import Client, Job

T = TypeVar("T")
PROGRAMS = Path(__file__).parent / "programs"
REPOSITORY = Path(__file__).parents[2]
# Read at import, as the tests' own fixtures take WEFT_… out of the environment.
ENVIRONMENTS = os.environ.get("WEFT_ENVIRONMENTS_DIR", str(Path.home() / ".cache/weft/environments"))


def eventually(condition: Callable[[], T | None], what: str, seconds: float = 120) -> T:
    """The first true value of ``condition()``; fails after a time that is generous on any machine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
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

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        port = () if (self.home / "weft.toml").exists() else ("--port", "0")
        return self.weft("up", "--detach", "--home", str(self.home), *port, *arguments)

    def down(self) -> None:
        self.weft("down", "--home", str(self.home))

    def weft(self, *arguments: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
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
        profile = tomllib.loads(self.profile.read_text())["profiles"]["default"]
        return Client(profile["url"], profile["token"])

    def train(self, job: Mapping[str, Any], code: Path | None = PROGRAMS) -> Job:
        return self.client.train(job, code)

    def write(self, folder: Path, job: Mapping[str, Any]) -> Path:
        """``job`` as a manifest file in ``folder``, for the command line."""
        path = folder / "manifest.yml"
        path.write_text(yaml.safe_dump(dict(job)))
        return path

    def parts(self) -> dict[str, int]:
        """The pid of each part of the stack, the supervisor's as 'weft'."""
        status = self.json("status", "--home", str(self.home))
        return {"weft": status["supervisor"]["pid"], **{part["name"]: part["pid"] for part in status["parts"]}}

    def kill(self, part: str) -> None:
        """kill -9 of one part, by its pid."""
        os.kill(self.parts()[part], signal.SIGKILL)

    def processes(self) -> list[psutil.Process]:
        """Every process that has to do with this home: the stack's, learners', and what those started."""

        def ours(process: psutil.Process) -> bool:
            words = (*process.cmdline(), process.cwd(), *process.environ().values())
            return process.pid != os.getpid() and any(str(self.home) in word for word in words)

        return alive(psutil.process_iter(), ours)

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
    with stack.client as client:
        answer = httpx.get(
            f"{client.url}/api/v1/jobs/{job.id}/metrics",
            params={"kind": kind},
            headers={"Authorization": f"Bearer {client._transport.server.token}"},
            timeout=60,
        )
    answer.raise_for_status()
    return {(metric["name"], metric["learner"]): metric for metric in answer.json()["series"]}


def saw(job: Job, text: str, learner: int = 1) -> Callable[[], bool]:
    return lambda: any(text in line for line in lines(job, learner))


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
