"""Real agents for the tests: processes as an engine starts them, against the API's double."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tests.trainer.api_double import TOKEN, ApiDouble

RUNTIME = Path(__file__).parents[2] / "trainer_images" / "runtime"


def spec(command: str, *, rank: int = 0, learners: int = 1, **changes: Any) -> dict[str, Any]:
    """A learner's spec as the API sends it."""
    return {
        "job_id": "job-1",
        "job_name": "a job",
        "attempt": 1,
        "rank": rank,
        "learners": learners,
        "cpus": 2,
        "gpus": 0,
        "command": command,
        "framework": "custom",
        "launcher": "none",
        "env": {},
        "heartbeat_seconds": 0.1,
        **changes,
    }


def environment(api: ApiDouble, workdir: Path, cache: Path, rank: int = 0, **env: str) -> dict[str, str]:
    """What an engine starts an agent with."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(RUNTIME),
        "WEFT_API_URL": api.url,
        "WEFT_ATTEMPT_TOKEN": TOKEN,
        "WEFT_RANK": str(rank),
        "WEFT_NUM_LEARNERS": str(len(api.specs)),
        "WEFT_WORKDIR": str(workdir),
        "WEFT_CACHE_DIR": str(cache),
        **env,
    }


class Agent:
    def __init__(
        self, api: ApiDouble, workdir: Path, cache: Path, rank: int, python: str = sys.executable, **env: str
    ) -> None:
        self.workdir = workdir
        workdir.mkdir(parents=True, exist_ok=True)
        self.log = workdir / "agent.log"
        variables = environment(api, workdir, cache, rank, **env)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python, "-m", "weft_trainer"], env=variables, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, timeout: float = 600.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent still runs; it said: {self.log.read_text()}") from None

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()

    @property
    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> None:
        """Whatever state a failed test has left it in."""
        if self.process.poll() is None:
            left = self.descendants
            self.process.kill()
            self.process.wait()
            for process in left:
                if process.is_running():
                    process.kill()


Launch = Callable[..., Agent]


def words(process: psutil.Process) -> list[str]:
    """A process's command line. One that has ended has none."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def ended(pid: int) -> bool:
    """Whether a process is no more (a zombie is not)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
