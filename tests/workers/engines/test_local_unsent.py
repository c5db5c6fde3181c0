"""Agents are killed, perhaps with all supervisors at once: their unsent lines and metrics are sent all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from tests.processes import all_processes
from tests.trainer.agents import spec as learner_spec
from tests.trainer.api_double import ApiDouble
from tests.workers.engines.bench import Bench, kill, until

from weft_core import processes
from weft_core.engine import LearnerState
from weft_core.launch import LaunchSpec
from weft_workers.environments import EnvironmentBuilder

LINES = [f"line {number}" for number in range(1, 41)]
HALF, METRIC = LINES[:20], [(None, 1)]
PROGRAM = """
python - <<'EOF'
import os, time
from weft_trainer import log_metrics
for number in range(1, 41):
    while number == 21 and not os.path.exists("{go}"):
        time.sleep(0.05)
    print("line", number, flush=True)
log_metrics(done=1)
time.sleep(600)
EOF
"""

Restart = Callable[[], None]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """With real agents."""
    bench.images = EnvironmentBuilder(bench.folder / "environments")
    bench.engine = bench.new_engine()
    return bench


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Restart:
    """The machine's life becomes another one with each call."""
    lives = iter(range(12345, 12400))

    def begin() -> None:
        life = f"{processes.boot_id()} {next(lives)}"
        monkeypatch.setattr(processes, "machine_life", lambda: life)

    return begin


@pytest.fixture
def api(bench: Bench) -> Iterator[ApiDouble]:
    """Of two learners, each of which prints the second half of its lines when the file ``go`` is there."""
    command = PROGRAM.format(go=bench.out / "go")
    with ApiDouble({rank: learner_spec(command, rank=rank, learners=2) for rank in range(2)}).serving() as made:
        yield made


@pytest.fixture
def running(bench: Bench, api: ApiDouble) -> LaunchSpec:
    """A run while the API is away, with half of its log and a metric unsent."""
    launched = replace(bench.spec("", learners=2), api_url=api.url, token=api.token)
    bench.engine.launch(launched)
    until(lambda: _lines(api) == [HALF] * 2)
    api.away = True
    (bench.out / "go").touch()
    agents = [bench.run(launched).learner(rank) / "agent" for rank in range(2)]
    until(
        lambda: all(
            LINES[-1] in _spooled(agent / "spool") and "done" in _spooled(agent / "metrics") for agent in agents
        )
    )
    return launched


@pytest.fixture
def spec(bench: Bench, running: LaunchSpec) -> LaunchSpec:
    """Such a run after all its supervisors and agents were killed."""
    bench.kill_everyone(running)
    return running


def _lines(api: ApiDouble) -> list[list[str]]:
    return [api.learners[rank].lines for rank in range(2)]


def _metrics(api: ApiDouble) -> list[object]:
    return [api.learners[rank].points("done") for rank in range(2)]


def _spooled(spool: Path) -> str:
    return "".join(path.read_text() for path in spool.glob("*.jsonl"))


def _senders(bench: Bench, spec: LaunchSpec) -> list[psutil.Process]:
    """The processes that have started agents for both learners, to send what is left."""
    found = []
    for process in all_processes():
        with suppress(psutil.Error):
            if {"weft_workers.supervision.unsent", str(bench.run(spec).path)} <= set(process.cmdline()):
                agents = [child for child in process.children() if "weft_trainer" in child.cmdline()]
                found += [process] if len(agents) == 2 else []
    return found


def test_a_supervisor_that_lives_has_it_sent_itself(bench: Bench, running: LaunchSpec, api: ApiDouble) -> None:
    for rank in range(2):
        kill(bench.agent_of(running, rank))
    api.away = False
    learners = bench.ended(running).values()
    assert {learner.reason for learner in learners} == {"killed by signal 9 (SIGKILL)"}
    assert (_lines(api), _metrics(api)) == ([LINES] * 2, [METRIC] * 2)
    assert api.problems == []


@pytest.mark.parametrize("restarted", [True, False], ids=["a restart", "no restart"])
def test_the_next_look_has_it_sent_and_then_ends_the_run(
    bench: Bench, spec: LaunchSpec, api: ApiDouble, restart: Restart, restarted: bool
) -> None:
    if restarted:
        restart()
    seen = bench.observe(spec)
    assert seen
    assert [learner.state for learner in seen.learners.values()] == [LearnerState.RUNNING] * 2, (
        "the attempt takes metrics"
    )
    api.away = False
    learners = bench.ended(spec).values()
    reason = "its machine or container was restarted" if restarted else "its process vanished"
    assert [(learner.reason, learner.interrupted) for learner in learners] == [(reason, restarted)] * 2
    assert (_lines(api), _metrics(api)) == ([LINES] * 2, [METRIC] * 2)
    assert api.problems == []
    bench.stop(spec)


def test_a_stop_has_it_sent_before_the_folder_goes(
    bench: Bench, spec: LaunchSpec, api: ApiDouble, restart: Restart
) -> None:
    restart()
    bench.engine.stop(spec.run_name, timedelta(0))
    assert bench.run(spec).path.exists()
    api.away = False
    until(lambda: bench.observe(spec) is None)
    assert (_lines(api), _metrics(api)) == ([LINES] * 2, [METRIC] * 2)
    assert not bench.run(spec).path.exists()


def test_an_api_that_stays_away_does_not_hold_up_a_stop_for_ever(bench: Bench, spec: LaunchSpec) -> None:
    assert bench.observe(spec)
    bench.stop(spec)
    assert not bench.run(spec).path.exists()


def test_however_many_look_it_is_sent_once_at_a_time(bench: Bench, spec: LaunchSpec, api: ApiDouble) -> None:
    engines = [bench.new_engine() for _ in range(4)]
    threads = [threading.Thread(target=engine.observe) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [sender] = until(lambda: _senders(bench, spec))
    for engine in engines:
        engine.observe()
    assert _senders(bench, spec) == [sender]
    api.away = False
    bench.ended(spec)
    assert _lines(api) == [LINES] * 2
    assert api.problems == []


def _kill_sender(bench: Bench, spec: LaunchSpec) -> None:
    """Its agents die with it."""
    [sender] = until(lambda: _senders(bench, spec))
    sender.kill()
    until(lambda: not bench.run(spec).alive())


def test_another_restart_meanwhile_has_it_sent_all_the_same(
    bench: Bench, spec: LaunchSpec, api: ApiDouble, restart: Restart
) -> None:
    restart()
    bench.observe(spec)
    _kill_sender(bench, spec)
    restart()
    bench.observe(spec)
    api.away = False
    bench.ended(spec)
    assert (_lines(api), _metrics(api)) == ([LINES] * 2, [METRIC] * 2)
    assert api.problems == []


def test_a_sender_that_is_killed_is_not_started_for_ever(bench: Bench, spec: LaunchSpec, api: ApiDouble) -> None:
    bench.observe(spec)
    _kill_sender(bench, spec)
    bench.ended(spec)
    assert _lines(api) == [HALF] * 2
