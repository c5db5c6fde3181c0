"""A local engine in a temporary home, with a stand-in for the agent: it runs the script that the API's URL names."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from weft_core import processes
from weft_core.engine import LearnerObservation, Observation
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.local import LocalEngine
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision.run import GONE, RunFolder

T = TypeVar("T")
INSTALLATION = "inst-test"
_AGENT = "import os, pathlib; exec(pathlib.Path(os.environ['WEFT_API_URL']).read_text())"
# Like the agent, the stand-in can be a fork of a process that has loaded it.
_FORKED = """
import os, runpy, sys
def run():
    try:
        runpy.run_module("weft_trainer", run_name="__main__")
    except SystemExit as end:
        os._exit(end.code)
    finally:
        sys.stdout.flush()
"""
FOREVER = "import time\ntime.sleep(600)"
# Each start of a learner leaves one letter.
COUNT = """
import os, time
with open(f"{OUT}/started-{os.environ['WEFT_RANK']}", "a") as file:
    file.write("x")
time.sleep(600)
"""


def until(condition: Callable[[], T | None], seconds: float = 600.0) -> T:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s; last answer: {answer!r}"
        time.sleep(0.01)
    return answer


class Bench:
    """One home with its engine. Nothing of it may be left at the end: see :meth:`close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.out = folder / "out"  # where scripts leave what tests read
        self.out.mkdir()
        self.agent = folder / "agent" / "weft_trainer"
        self.agent.mkdir(parents=True)
        (self.agent / "__init__.py").touch()
        (self.agent / "__main__.py").write_text(_AGENT)
        (self.agent / "forked.py").write_text(_FORKED)
        self.images = EnvironmentBuilder(folder / "environments", agent=self.agent)
        self.engine = self.new_engine()

    def new_engine(self, name: str = "local", installation: str = INSTALLATION, **settings: object) -> LocalEngine:
        """An engine as another worker would have it."""
        chosen = LocalSettings.model_validate(
            # Scripts stand for agents here, and tests look at them from outside: see test_local_isolation.py.
            {"type": "local", "cpus": 64, "memory": 1 << 40, "isolation": "none", **settings}
        )
        return LocalEngine(name, chosen, self.home, self.images, installation)

    def spec(
        self,
        script: str,
        *,
        job: str = "a",
        learners: int = 1,
        image: str = sys.prefix,
        memory: int = 1 << 30,
        cpus: float = 0.5,
        gpus: int = 0,
        gpu_type: str | None = None,
    ) -> LaunchSpec:
        path = self.folder / f"{job}.py"
        path.write_text(f"OUT = {str(self.out)!r}\n{script}\n")
        return LaunchSpec(
            run_name=f"weft-job-{job}-1",
            installation=INSTALLATION,
            project_id="prj-1",
            job_id=f"job-{job}",
            attempt=1,
            learners=learners,
            resources=Resources(cpus=cpus, gpus=gpus, memory=memory, gpu_type=gpu_type),
            image=image,
            api_url=str(path),
            token="weft_a_very-secret",
        )

    def run(self, spec: LaunchSpec) -> RunFolder:
        return RunFolder(self.home / "runs" / spec.run_name)

    def observe(self, spec: LaunchSpec) -> Observation | None:
        return self.engine.observe().get(spec.run_name)

    def wait(self, spec: LaunchSpec, is_so: Callable[[Observation], object]) -> Observation:
        """The first observation of the run that ``is_so``."""

        def observe() -> Observation | None:
            seen = self.observe(spec)
            return seen if seen and is_so(seen) else None

        return until(observe)

    def agent_of(self, spec: LaunchSpec, rank: int = 0) -> processes.Identity:
        """A learner's agent, once its supervisor has noted who it is: the agent may have done things by then."""
        found = until(lambda: self.run(spec).agent(rank))
        assert found
        return found

    def kill_everyone(self, spec: LaunchSpec) -> None:
        """Kill all supervisors and agents of a run at once, as a restart of the machine does."""
        run = self.run(spec)
        agents = [self.agent_of(spec, rank) for rank in range(spec.learners)]
        everyone = [run.gang(), *(run.supervisor(rank) for rank in range(spec.learners)), *agents]
        for who in everyone:
            assert who
            os.kill(who.pid, signal.SIGSTOP)  # so that none can act when another dies
        for who in everyone:
            kill(who)
        until(lambda: not run.alive())

    def said(self, name: str) -> Path:
        """A file that a script writes, once it is there."""
        path = self.out / name
        until(path.exists)
        return path

    def ended(self, spec: LaunchSpec) -> dict[int, LearnerObservation]:
        """The learners, once all have exited."""

        seen = self.wait(spec, lambda seen: seen.failed or (seen.learners and seen.gone))
        assert not seen.failed
        return dict(seen.learners)

    def stop(self, spec: LaunchSpec, grace: float = 0.0) -> None:
        """Stop a run, and wait until nothing of it is left."""
        self.engine.stop(spec.run_name, timedelta(seconds=grace))
        until(lambda: self.observe(spec) is None)
        until(lambda: not self.processes())

    def processes(self) -> list[str]:
        """Command lines of the processes that have to do with this home, whatever they made of themselves. Not of its
        engines' fork servers, which end with the engines."""
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if not name.isdecimal() or int(name) == os.getpid():
                    continue
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                if b"weft_workers.supervision.fork_server" in command:
                    continue
                inside = str(self.folder) in os.readlink(f"/proc/{name}/cwd")
                if inside or os.fsencode(self.folder) in command + Path(f"/proc/{name}/environ").read_bytes():
                    found.append(f"{name} {command.replace(bytes(1), b' ').decode()}")
        return found

    def close(self) -> None:
        for path in (self.home / "runs").glob("[!.]*"):
            self.engine.stop(path.name, timedelta(0))
            self.new_engine("other").stop(path.name, timedelta(0))
        until(lambda: not self.processes())
        # A program that deletes one shows no command while it starts.
        until(lambda: not list((self.home / "runs").glob(f"{GONE}*")))


def kill(who: processes.Identity | None) -> None:
    assert who is not None
    os.kill(who.pid, signal.SIGKILL)
