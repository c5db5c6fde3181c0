"""A worker in a process of its own, that is killed in the middle of a step; run by test_crash.

The engine's runs are files in a folder, so that they outlive the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from weft_core.engine import Capacity, LearnerObservation, LearnerState, Node, Observation
from weft_core.launch import LaunchSpec
from weft_core.manifest import Notify
from weft_core.notifications import Notification
from weft_core.settings import Settings
from weft_workers.context import make_context
from weft_workers.delivering import Deliverer
from weft_workers.reconcile import admit, step
from weft_workers.sending import Sender, Sent


class FileEngine:
    """Runs are files; ``die`` names the moment of a launch at which this process kills itself."""

    def __init__(self, folder: Path, die: str = "") -> None:
        self.name, self.grows_runs, self.folder, self.die = "local", False, folder, die

    def launch(self, spec: LaunchSpec) -> None:
        if self.die == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        with (self.folder / "launches.log").open("a") as log:
            path = self.folder / f"{spec.run_name}.run"
            log.write(("adopted " if path.exists() else "created ") + f"{spec.run_name}\n")
            if not path.exists():
                new = path.with_suffix(".new")
                new.write_text(spec.token)
                new.rename(path)  # whole at once
        if self.die == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        raise NotImplementedError

    def observe(self) -> Mapping[str, Observation]:
        names = [path.stem for path in self.folder.glob("*.run")]
        return {name: Observation(name, {0: LearnerObservation(0, LearnerState.RUNNING)}) for name in names}

    def stop(self, run_name: str, grace: timedelta) -> None:
        (self.folder / f"{run_name}.run").unlink(missing_ok=True)

    def capacity(self) -> Capacity:
        return Capacity((Node("n", 4, 0, 8 << 30),))

    @property
    def log(self) -> list[str]:
        path = self.folder / "launches.log"
        return path.read_text().splitlines() if path.exists() else []


def work(settings: Settings, folder: Path, job_id: str, die: str) -> None:
    """Step a job once."""
    context = make_context(settings, "inst-test", {"local": FileEngine(folder, die)})
    step(context, job_id)
    context.close()


def plan_and_die(settings: Settings, folder: Path) -> None:
    """Make a pass over the queue, and die when jobs are admitted in it, before it is committed."""
    context = make_context(settings, "inst-test", {"local": FileEngine(folder)})
    admit._remember = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
    admit.admit(context, "local")


class _Dying(Sender):
    """Sends, and kills its process before anything is written back."""

    def send(self, target: Notify, secret: bytes | None, notification: Notification) -> Sent:
        super().send(target, secret, notification)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def deliver_and_die(settings: Settings) -> None:
    """Send what is due, and die."""
    context = make_context(settings, "inst-test", {})
    deliverer = Deliverer(context, _Dying(settings, context.box))
    deliverer.run_due()
    deliverer.settle(60)
