"""The container engine and Compose of this machine: whichever of them answers, driven as a user does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_PROOF = {"docker": "version", "podman": "info"}
_COMPOSE = (("docker", "compose"), ("docker-compose",), ("podman", "compose"))
BUILD = 3600
"""Seconds for a build with nothing in its cache, on a busy machine."""


class EngineError(Exception):
    """What a command of the engine's printed."""


def works(*command: str) -> bool:
    if not shutil.which(command[0]):
        return False
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def run(*command: str, timeout: float = 600, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Standard output. Raises EngineError with the end of all output."""
    done = subprocess.run(
        command,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        raise EngineError(f"`{' '.join(command)}` ended with exit code {done.returncode}:\n{said}")
    return done.stdout


@dataclass
class Engine:
    """Docker or its replacement, and the tests' findings about the images, for the summary."""

    findings: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def tool(self) -> str:
        for name, proof in _PROOF.items():
            if works(name, proof):
                return name
        raise EngineError("no container engine answers: neither `docker version` nor `podman info` succeeds")

    @cached_property
    def compose(self) -> tuple[str, ...]:
        for command in _COMPOSE:
            if works(*command, "version"):
                return command
        raise EngineError(f"no Compose: none of {', '.join(' '.join(program) for program in _COMPOSE)} is there")

    def __call__(self, *arguments: str, timeout: float = 600, stdin: str | None = None) -> str:
        return run(self.tool, *arguments, timeout=timeout, stdin=stdin)

    def build(self, dockerfile: str, tag: str, context: Path = REPOSITORY, arguments: Sequence[str] = ()) -> None:
        started = time.monotonic()
        self("build", "--file", str(REPOSITORY / dockerfile), "--tag", tag, *arguments, str(context), timeout=BUILD)
        self.found(f"{tag}: build", f"{time.monotonic() - started:.0f} s")
        self.found(f"{tag}: size", self.size(tag))

    def image(self, tag: str) -> dict[str, Any]:
        inspected: list[dict[str, Any]] = json.loads(self("image", "inspect", tag))
        return inspected[0]

    def layers(self, tag: str) -> list[str]:
        return list(self.image(tag)["RootFS"]["Layers"])

    def size(self, tag: str) -> str:
        return f"{self.image(tag)['Size'] / 1e6:.0f} MB"

    def inside(self, tag: str, *command: str, options: Sequence[str] = (), stdin: str | None = None) -> str:
        """What a command prints in a container of the image that is gone afterwards."""
        entry = ("--entrypoint", command[0])
        attached = ("--interactive",) if stdin is not None else ()
        return self("run", "--rm", *attached, *options, *entry, tag, *command[1:], timeout=1800, stdin=stdin)

    def found(self, what: str, value: str) -> None:
        self.findings.append((what, value))
