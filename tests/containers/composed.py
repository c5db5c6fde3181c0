"""The service of docker-compose.yml under its own project name, and a user of it with the `weft` command."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import yaml
from tests.containers.engine import REPOSITORY, Engine, EngineError, run
from tests.servers import free_port

from weft import Client
from weft_core.secrets import generate_key

SERVERS = ("postgres", "redis", "s3", "api", "worker")
ONE_SHOTS = ("migrate", "setup")
_UP = 1200


def address() -> str:
    """This machine's, as containers and users reach it; no packet is sent. WEFT_TEST_HOST where that is another."""
    if given := os.environ.get("WEFT_TEST_HOST"):
        return given
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


class Composed:
    """docker-compose.yml as it is, with fresh secrets, free ports, and the images that were just built."""

    def __init__(self, engine: Engine, folder: Path, api: str, worker: str) -> None:
        self.engine = engine
        self.folder = folder
        self.project = f"weft-test-{secrets.token_hex(3)}"
        self.host, self.port, self.store_port = address(), free_port(), free_port()
        self.use(api, worker)
        self._environment = folder / "env"
        self._environment.touch(0o600)
        self._environment.write_text("".join(f"{name}={value}\n" for name, value in self._variables().items()))

    def _variables(self) -> dict[str, str]:
        """A value for each name of .env.example."""
        names = [
            line.split("=")[0].lstrip("# ")
            for line in (REPOSITORY / ".env.example").read_text().splitlines()
            if line.lstrip("# ").startswith("WEFT_") and "=" in line
        ]
        values = {name: secrets.token_hex(24) for name in names}
        return values | {
            "WEFT_HOST": self.host,
            "WEFT_PORT": str(self.port),
            "WEFT_S3_PORT": str(self.store_port),
            "WEFT_SECRET_KEYS": generate_key(),
            "WEFT_OIDC": "{}",
            "WEFT_IDENTITY__ISSUER": "https://weft.test",
        }

    def use(self, api: str, worker: str) -> None:
        """Images for the next ``up``, in place of the compose file's own tags."""
        images = dict.fromkeys(("migrate", "setup", "api"), api) | {"worker": worker}
        override = {"services": {name: {"image": image} for name, image in images.items()}}
        (self.folder / "override.yml").write_text(yaml.safe_dump(override))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def profile(self) -> Path:
        return self.folder / "profile.toml"

    # --- Compose ---

    def compose(self, *arguments: str, timeout: float = 600) -> str:
        """Raises EngineError."""
        files = ("--file", str(REPOSITORY / "docker-compose.yml"), "--file", str(self.folder / "override.yml"))
        where = ("--project-name", self.project, "--env-file", str(self._environment))
        return run(*self.engine.compose, *where, *files, *arguments, timeout=timeout)

    def up(self) -> float:
        """Wait until all is healthy; returns the seconds. Raises EngineError with the containers' logs."""
        started = time.monotonic()
        try:
            self.compose("up", "--detach", "--no-build", "--wait", timeout=_UP)
        except EngineError as error:
            raise EngineError(f"{error}\n{self.diagnosis()}") from None
        return time.monotonic() - started

    def down(self) -> None:
        self.compose("down")

    def remove(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans")

    def restart(self, service: str) -> None:
        self.compose("restart", service)
        self.wait_healthy(service)

    def container(self, service: str) -> dict[str, Any]:
        name = self.compose("ps", "--all", "--quiet", service).split()[0]
        found: list[dict[str, Any]] = json.loads(self.engine("container", "inspect", name))
        return found[0]

    def health(self, service: str) -> str:
        state = self.container(service)["State"]
        return str((state.get("Health") or state.get("Healthcheck") or {}).get("Status", ""))

    def wait_healthy(self, service: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while (health := self.health(service)) != "healthy":
            assert time.monotonic() < deadline, f"{service} is {health!r} after {seconds:.0f} s\n{self.diagnosis()}"
            time.sleep(1)

    def execute(self, service: str, *command: str) -> str:
        return self.compose("exec", "-T", service, *command)

    def diagnosis(self) -> str:
        try:
            return self.compose("ps", "--all") + self.compose("logs", "--no-color", "--tail", "40")
        except EngineError as error:
            return str(error)

    # --- a user ---

    def token(self) -> str:
        """A fresh token of the administrator, by the command at the head of docker-compose.yml."""
        command = ("run", "--rm", "-T", "setup", "python", "-m", "weft_core.setup", "--token")
        return self.compose(*command).split()[-1]

    def weft(self, *arguments: str, stdin: str | None = None, timeout: float = 3600) -> str:
        """What `weft` prints. Raises EngineError if it fails."""
        environment = {"WEFT_PROFILE_FILE": str(self.profile), "COLUMNS": "200"}
        program = str(Path(sys.executable).with_name("weft"))
        return run(program, *arguments, timeout=timeout, stdin=stdin, env=environment)

    def client(self) -> Client:
        """A client that is signed in with the profile that `weft login` wrote."""
        profile = tomllib.loads(self.profile.read_text())
        (found,) = [server for server in profile["profiles"].values() if server["url"] == self.url]
        return Client(self.url, found["token"])


def digits(folder: Path) -> Path:
    """The example's data: scikit-learn's digits as MNIST's files."""
    program = REPOSITORY / "examples" / "data" / "digits.py"
    subprocess.run([sys.executable, str(program), str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder
