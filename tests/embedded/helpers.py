"""Running ``python -m weft_embedded`` as a user does, and examining its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from weft_embedded.home import Home


class Weft:
    """The commands on one home."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.profile = home.parent / f"{home.name}-profile.toml"
        self.environment = {**os.environ, "WEFT_PROFILE_FILE": str(self.profile), **environment}
        self.said = ""

    def run(self, action: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weft_embedded", action, "--home", str(self.home), *flags],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,  # a busy machine takes its time
            check=False,
        )

    def up(self, *flags: str) -> None:
        """Start it; ``said`` is what that prints."""
        done = self.run("up", "--detach", "--port", "0", *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said = done.stdout

    def runs(self) -> bool:
        """Whether a supervisor holds the home."""
        return Home(self.home).locked()

    def status(self) -> dict[str, Any]:
        """The supervisor's last report, which `weft status --json` prints; read here, as a process costs half a second.

        Unlike that command, it does not touch the home's lock, so a test may ask while `weft up` begins.
        """
        return {"home": str(self.home), **asdict(Home(self.home).load_state())}

    def parts(self) -> dict[str, dict[str, Any]]:
        return {part["name"]: part for part in self.status()["parts"]}

    def listening(self) -> set[tuple[str, str, int]]:
        """Part, address and port of everything that accepts connections from the network."""
        return {
            (name, connection.laddr.ip, connection.laddr.port)
            for name, part in self.parts().items()
            for connection in psutil.Process(part["pid"]).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }

    def processes(self) -> dict[int, str]:
        """Every living process that belongs to this home, whatever its parent, with its command."""
        found = {}
        for folder in Path("/proc").iterdir():
            try:
                if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                stands_in = str((folder / "cwd").readlink())
            except OSError:
                continue
            ours = any(
                variable.startswith(b"WEFT_PART=") and str(self.home).encode() in variable for variable in environment
            )
            # Redis writes over its environment, postgres' children over their command: these stand in the home.
            ours = ours or stands_in.startswith(str(self.home))
            if ours or f"--home {self.home} " in f"{command} ":
                found[int(folder.name)] = command
        return found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 600) -> None:
    """Wait until it is so; the patience is for a busy machine only."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)
