"""A user's folder on a machine, with `weft run`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests.e2e.stack import ENVIRONMENTS, PROGRAMS, alive, eventually
from tests.processes import all_processes


class Desk:
    """A user's folder, with a home of its own so that nothing of it can be missed afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.code = folder / "code"
        self.home.mkdir()
        shutil.copytree(PROGRAMS, self.code)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "AWS_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
        }

    def manifest(self, command: str, **changes: Any) -> Path:
        base = {
            "name": "desk job",
            "cpus": 0.5,
            "memory": "512 MiB",
            "framework": {"name": "python", "version": "3.11", "command": command},
        }
        path = self.code / "manifest.yml"
        path.write_text(yaml.safe_dump(base | changes))
        return path

    def start(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["weft", "run", *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path, code: int = 0, env: Mapping[str, str] | None = None, stdin: str = "") -> Any:
        running = self.start(*arguments, env=env, stdin=subprocess.PIPE)
        try:
            out, err = running.communicate(stdin, timeout=1400)
        except subprocess.TimeoutExpired:
            stacks = self.stacks()
            running.kill()
            raise AssertionError(f"no end:\n{running.communicate()}\n{stacks}") from None
        done = subprocess.CompletedProcess(running.args, running.returncode, out, err)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def stacks(self) -> str:
        """Where each of this user's processes is: an answer to why a run does not end."""
        spy = str(Path(sys.executable).with_name("py-spy"))
        said = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                said.append(f"{process.pid}, child of {process.ppid()}, {process.status()}: {process.cmdline()}")
                found = subprocess.run(
                    [spy, "dump", "--nonblocking", "--pid", str(process.pid)],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=300,
                )
                said.append(found.stdout or found.stderr)
        return "\n".join(said)

    def processes(self) -> Sequence[psutil.Process]:
        """Whatever runs on behalf of this user."""

        def ours(process: psutil.Process) -> bool:
            words = (*process.cmdline(), *process.environ().values())
            return process.pid != os.getpid() and any(str(self.folder) in word for word in words)

        return alive(all_processes(), ours)

    def nothing_is_left(self) -> None:
        eventually(lambda: not self.processes(), f"processes are left: {self.processes()}")
        runs = self.home / ".cache/weft/runs"
        eventually(lambda: {entry.name for entry in runs.glob("*")} <= {".lock"}, f"in {runs}: {list(runs.glob('*'))}")
