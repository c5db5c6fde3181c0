"""The fork server of a local engine starts each run once, whatever happens to it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest
from tests.processes import all_processes
from tests.workers.engines.bench import COUNT, Bench, kill, until

from weft_core import processes
from weft_core.engine import EngineUnreachable
from weft_core.launch import LaunchSpec
from weft_workers.engines.local import engine


def fork_servers(bench: Bench) -> list[processes.Identity]:
    """Those of the home's engines. Each prints into the log of the run for which it was started."""
    found = []
    for process in all_processes():
        with suppress(psutil.Error, OSError):
            is_one = "weft_workers.supervision.fork_server" in process.cmdline()
            if is_one and str(bench.folder) in os.readlink(f"/proc/{process.pid}/fd/2"):
                found.append(processes.identity(process.pid))
    return [identity for identity in found if identity]


def started(bench: Bench, spec: LaunchSpec) -> str:
    """One letter for each start of the learner."""
    return until(bench.said("started-0").read_text)


def test_it_serves_all_runs_of_an_engine(bench: Bench) -> None:
    for job in ("a", "b", "c"):
        spec = bench.spec(COUNT, job=job)
        bench.engine.launch(spec)
        bench.agent_of(spec)
    assert len(fork_servers(bench)) == 1


def test_the_runs_outlive_a_killed_fork_server_and_the_next_run_gets_another(bench: Bench) -> None:
    first, second = bench.spec(COUNT, job="a"), bench.spec(COUNT, job="b")
    bench.engine.launch(first)
    agent = bench.agent_of(first)
    [killed] = fork_servers(bench)
    kill(killed)
    bench.engine.launch(second)
    bench.agent_of(second)
    assert processes.identity(agent.pid) == agent
    assert killed not in fork_servers(bench)


@pytest.mark.parametrize("killed", [False, True], ids=["which goes on", "which is killed"])
def test_a_frozen_fork_server_starts_nothing_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    monkeypatch.setattr(engine, "_START_SECONDS", 1.0)
    impatient = bench.new_engine()
    earlier = bench.spec("", job="earlier")
    impatient.launch(earlier)
    bench.stop(earlier)
    [frozen] = fork_servers(bench)
    os.kill(frozen.pid, signal.SIGSTOP)
    spec = bench.spec(COUNT)
    with pytest.raises(EngineUnreachable, match="did not start within 1 s"):
        impatient.launch(spec)
    os.kill(frozen.pid, signal.SIGKILL if killed else signal.SIGCONT)
    monkeypatch.undo()
    bench.engine.launch(spec)
    bench.agent_of(spec)
    assert started(bench, spec) == "x"
    bench.stop(spec)
    assert started(bench, spec) == "x"
    until(lambda: frozen not in fork_servers(bench))


def test_it_ends_with_its_worker(bench: Bench) -> None:
    spec = bench.spec(COUNT)
    ready, done = os.pipe()
    worker = os.fork()
    if worker == 0:
        with suppress(BaseException):
            bench.engine.launch(spec)
        os.write(done, b".")
        signal.pause()
    os.read(ready, 1)
    assert fork_servers(bench)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    until(lambda: not fork_servers(bench))
    assert started(bench, spec) == "x"
