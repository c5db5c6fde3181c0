"""The system under test: real servers, two APIs behind a gate, three workers with their sweepers, S3 behind a gate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography.fernet import Fernet
from pydantic import SecretStr
from tests.api.conftest import Person
from tests.e2e.stack import ENVIRONMENTS, alive, eventually
from tests.processes import all_processes
from tests.servers import free_port

from benchmarks.chaos.gate import Gate
from benchmarks.logs.service import DurableServers, Remote
from weft_core.settings import Settings

APIS, WORKERS = 2, 3
LEASE, SILENCE = 5, 6
_TIMINGS = {
    "sweep": 1, "lease": LEASE, "heartbeat": 1, "silence": SILENCE, "verdict": 10,
    "log_settle": 1, "orphan_grace": 10, "grace": 10,
}  # fmt: skip
_FAKETIME = "/usr/lib/{}/faketime/libfaketimeMT.so.1"


class Process:
    """A process of the service, in a group of its own, that may be killed, frozen and started again."""

    def __init__(self, name: str, module: str, environment: Mapping[str, str], log: Path) -> None:
        self.name, self._module, self._environment, self._log = name, module, dict(environment), log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9; the processes that it has started end by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Installation:
    """All of it, started.

    Args:
        folder: for everything that is written.
        engines: the engines of the settings, by name.
        shifted: seconds by which the clocks of the last API and the last worker are wrong; 0: they are right.
    """

    def __init__(self, folder: Path, engines: Mapping[str, Any], shifted: int = 0) -> None:
        self.folder = folder
        self.servers = DurableServers()
        self._database = self.servers.database_url()
        self.database_url = self._database.__enter__()
        bucket = self.servers.bucket()
        self.s3 = Gate([self.servers.s3.port])
        ports = [free_port() for _ in range(APIS)]
        self.api = Gate(ports)
        self._key = Fernet.generate_key().decode()
        self.settings = Settings(
            database_url=SecretStr(self.database_url),
            redis_url=SecretStr(self.servers.redis.url),
            secret_keys=[SecretStr(self._key)],
            s3=bucket.model_copy(update={"endpoint": self.s3.url}),
        )
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WEFT_")},
            "WEFT_HOME": str(folder / "home"),
            "WEFT_CONFIG": str(folder / "none.toml"),
            "WEFT_DATABASE_URL": self.database_url,
            "WEFT_REDIS_URL": self.servers.redis.url,
            "WEFT_SECRET_KEYS": self._key,
            "WEFT_S3__ENDPOINT": self.s3.url,
            "WEFT_S3__ACCESS_KEY": bucket.access_key,
            "WEFT_S3__SECRET_KEY": bucket.secret_key.get_secret_value(),
            "WEFT_S3__BUCKET": bucket.bucket,
            "WEFT_API__PUBLIC_URL": self.api.url,
            "WEFT_ENGINES": json.dumps(dict(engines)),
            "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
            **{f"WEFT_TIMINGS__{name.upper()}": str(value) for name, value in _TIMINGS.items()},
        }
        wrong = environment | (_wrong_clock(shifted) if shifted else {})
        self.apis = [
            Process(
                f"API {n + 1}",
                "weft_api",
                {**(wrong if n == APIS - 1 else environment), "WEFT_API__PORT": str(port)},
                folder / f"api-{n + 1}.log",
            )
            for n, port in enumerate(ports)
        ]
        self.workers = [
            Process(
                f"worker {n + 1}",
                "weft_workers",
                wrong if n == WORKERS - 1 else environment,
                folder / f"worker-{n + 1}.log",
            )
            for n in range(WORKERS)
        ]
        for process in (*self.apis, *self.workers):
            process.start()
        eventually(self.ready, f"an API answers; see {folder}")
        self.remote = Remote(self.settings, self.api.url)
        self.person: Person = self.remote.person()

    def ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.api.url}/readyz", timeout=10).is_success
        return False

    def learners(self) -> list[psutil.Process]:
        """The processes of learners: agents and the programs that they run."""

        def ours(process: psutil.Process) -> bool:
            words = process.cmdline()
            return "weft_trainer" in words or any(word.endswith("audited.py") for word in words)

        return alive(all_processes(), lambda process: ours(process) and self._belongs(process))

    def stop(self) -> None:
        """Kill all of it, the learners that are left with it."""
        for process in (*self.apis, *self.workers):
            process.thaw()
            process.kill()
        self.remote.stop()
        self.api.close()
        self.s3.close()
        self.servers.stop()
        end = time.monotonic() + 30
        while (left := alive(all_processes(), self._belongs)) and time.monotonic() < end:
            for other in left:
                with suppress(psutil.Error):
                    other.kill()
            time.sleep(0.1)

    def _belongs(self, process: psutil.Process) -> bool:
        """Whether a process was given this installation's folder or its API."""
        told = " ".join([*process.environ().values(), process.cwd()])
        return process.pid != os.getpid() and (str(self.folder) in told or self.api.url in told)


def _wrong_clock(seconds: int) -> dict[str, str]:
    """The environment in which a process reads another time, though time passes as fast.

    Raises:
        SystemExit: there is no libfaketime.
    """
    for machine in ("x86_64-linux-gnu", "aarch64-linux-gnu"):
        if (library := Path(_FAKETIME.format(machine))).exists():
            return {"LD_PRELOAD": str(library), "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    raise SystemExit("no libfaketime: apt-get install libfaketime, or leave --shift out")


@contextmanager
def installed(folder: Path, engines: Mapping[str, Any], shifted: int) -> Iterator[Installation]:
    installation = Installation(folder, engines, shifted)
    try:
        yield installation
    finally:
        installation.stop()
