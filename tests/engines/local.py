"""The local engine: its learners are processes, its runs are folders."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engines.bench import OURS, Ability, Bench, NotHere

from weft_core import processes
from weft_core.catalogue import Catalogue, Image
from weft_core.engine import Engine
from weft_core.engine_settings import LocalSettings
from weft_core.launch import Resources
from weft_workers.engines.local import LocalEngine
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision.cgroups import MemoryGroup
from weft_workers.supervision.run import RunFolder

_ALWAYS: Mapping[Ability, str] = {
    "network": "between it and its learners are files of this machine, which are there or the machine is not",
    "others": "its slots are what the settings say, or the machine; other users of it are not asked for",
}
_NO_GROUPS = "this machine lets it make no memory control group, so its kernel limits nothing"


class LocalBench(Bench):
    kind = "local"
    image = sys.prefix

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self._go = folder / "go"
        self._images = EnvironmentBuilder(
            folder / "environments", catalogue=Catalogue([_late_image(folder, self._go)], {})
        )
        group = MemoryGroup.make(f"weft-suite-{os.getpid()}", 1 << 30)
        if group:
            group.remove()
        self.lacks = _ALWAYS if group else {**_ALWAYS, "memory limit": _NO_GROUPS}

    def engine(self, installation: str = OURS, timeout: float = 20.0) -> Engine:
        settings = LocalSettings(cpus=64, gpus=1, memory=1 << 40)
        return LocalEngine("local", settings, self._home, self._images, installation)

    def things(self, *run_names: str) -> list[str]:
        runs = [RunFolder(self._home / "runs" / run_name) for run_name in run_names]
        groups = [MemoryGroup.find(run.group_name(rank)) for run in runs for rank in range(4)]
        folders = [
            path for path in (self._home / "runs").glob("*") if any(run_name in path.name for run_name in run_names)
        ]
        return [str(path) for path in (*folders, *(group.folder for group in groups if group))]

    def runs(self) -> list[str]:
        return [path.name for path in (self._home / "runs").glob("[!.]*")]

    def remove_learner(self, run_name: str, rank: int) -> None:
        """Its supervisor dies, and it with it."""
        supervisor = RunFolder(self._home / "runs" / run_name).supervisor(rank)
        assert supervisor
        processes.send(supervisor, signal.SIGKILL)

    def late(self) -> Mapping[str, Any]:
        return {"image": "late:1.0"}

    def scarce(self) -> Resources:
        return Resources(cpus=0.25, gpus=1, memory=self.each.memory)

    def close(self) -> None:
        self._go.touch()


def _late_image(folder: Path, go: Path) -> Image:
    """An image whose environment is not built before the file ``go`` is there."""
    lock, script = folder / "requirements.lock", folder / "build"
    lock.write_text("")
    script.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.2; done\n")
    script.chmod(0o755)
    return Image("late", "1.0", folder, lock, ("late",), ("none",), "none", (), script)


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    if not sys.platform.startswith("linux"):
        raise NotHere("NOT RUN: the local engine needs Linux")
    bench = LocalBench(folder)
    yield bench
    bench.close()
