"""Profiles of programs that really run: traces by PyTorch's own profiler, stacks by py-spy."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from tests.environments import FIRST_RUN, python_of

from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.program import at_exit, collectives, profiling
from weft_trainer.program.profiles import Profiler, Wanted

PROGRAM = Path(__file__).parents[2] / "e2e" / "programs" / "trains.py"
ID = "20260131-081500-4f2a"
SECONDS = 240


def profiler(folder: Path) -> Profiler:
    """Processes that other tests have left are taken for the agent's own."""
    own = {process.pid for process in psutil.Process().children(recursive=True)}
    watchdog = SimpleNamespace(own=own, adopt=own.add, disown=own.discard)
    (folder / "profiles").mkdir()
    (folder / "collectives").mkdir()
    return Profiler(folder / "profiles", folder / "collectives", folder / "scratch", cast(Watchdog, watchdog))


@contextmanager
def running(*command: str | Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(list(map(str, command)), env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.timeout(FIRST_RUN)
def test_both_ranks_of_a_training_have_a_trace_of_as_many_steps_and_their_stacks(tmp_path: Path) -> None:
    python = python_of("pytorch:2.13.0")
    hooks = tmp_path / "site-packages"
    hooks.mkdir()
    for module, name in ((at_exit, "at_exit"), (collectives, "collectives"), (profiling, "profiling")):
        shutil.copy(str(module.__file__), hooks / f"weft_{name}.py")
    (hooks / "sitecustomize.py").write_text("import weft_at_exit\n")  # as the environment of a job has it
    recorder = profiler(tmp_path)
    place = {
        "PYTHONPATH": str(hooks),
        profiling.FOLDER_VARIABLE: str(tmp_path / "profiles"),
        collectives.FOLDER_VARIABLE: str(tmp_path / "collectives"),
    }
    said: list[str] = []
    with running(python, PROGRAM, tmp_path, **place):
        eventually(lambda: len(list((tmp_path / "profiles").glob("*.asked"))) == 2)
        found = recorder.record(Wanted(ID, steps=3, seconds=SECONDS), said.append, threading.Event())
    assert said == ["PyTorch's profiler records 3 steps of 2 processes"]
    assert found.missing == []
    ends = ("collectives.txt", "stacks.txt", "trace.json.gz")
    assert sorted(found.files) == [f"rank-{rank}.{end}" for rank in (0, 1) for end in ends]
    for rank in (0, 1):
        trace = json.loads(gzip.decompress(found.files[f"rank-{rank}.trace.json.gz"].read_bytes()))
        names = [event["name"] for event in trace["traceEvents"] if event.get("cat") in ("user_annotation", "cpu_op")]
        assert [name for name in names if name.startswith("ProfilerStep#")] == [f"ProfilerStep#{n}" for n in range(3)]
        assert names.count("aten::linear") == 3
        entered = [line.split() for line in found.files[f"rank-{rank}.collectives.txt"].read_text().splitlines()]
        assert {(group, operation) for group, _, operation, _ in entered} == {("0", "all_reduce")}
        numbers, times = [int(entry[1]) for entry in entered], [int(entry[3]) for entry in entered]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert times == sorted(times)
        assert times[-1] / 1e9 == pytest.approx(time.time(), abs=SECONDS)
        stacks = found.files[f"rank-{rank}.stacks.txt"].read_text()
        assert "MainThread;" in stacks
        assert "step (trains.py:" in stacks
        assert profiling.THREAD not in stacks


def test_a_program_without_pytorch_has_its_stacks(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import time\ndef waits_for_data(): time.sleep(1000)\nopen({str(ready)!r}, 'w').close()\nwaits_for_data()"
    recorder = profiler(tmp_path)
    said: list[str] = []
    with running(sys.executable, "-c", code):
        eventually(ready.exists)
        found = recorder.record(Wanted(ID, steps=3, seconds=2), said.append, threading.Event())
    assert said == ["py-spy records 1 process for 2 s"]
    assert found.missing == []
    [(name, path)] = found.files.items()
    assert name == "process-1.stacks.txt"
    assert "waits_for_data (<string>:2)" in path.read_text()


class Module:
    """The part of ``torch.optim.optimizer`` that a recording changes."""

    def __init__(self) -> None:
        self._global_optimizer_post_hooks: dict[int, Callable[..., None]] = {}

    def step(self, optimizer: object) -> None:
        for hook in self._global_optimizer_post_hooks.values():
            hook(optimizer, (), {})

    def outer_step(self, optimizer: object) -> None:
        self.step(optimizer)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a recording has its profiler do."""
    done: list[str] = []
    double = SimpleNamespace(step=lambda: done.append("step"), stop=lambda: done.append("stop"))

    def started() -> Any:
        done.append("start")
        return double

    monkeypatch.setattr(profiling, "_started", started)
    return done


def test_a_recording_begins_and_ends_after_a_step_and_leaves_the_programs_hooks(recorded: list[str]) -> None:
    module, optimizer, other = Module(), object(), object()
    own, calls = module._global_optimizer_post_hooks, []
    own[1] = lambda *_: calls.append(1)
    recording = profiling._Recording(module, 2)
    recording.begin()
    for stepping in (optimizer, other, optimizer, other, optimizer):
        module.step(stepping)
    assert recorded == ["start", "step", "stop"]
    assert recording.ended.is_set()
    assert recording.steps == 2
    assert module._global_optimizer_post_hooks is own
    assert list(own) == [1]
    assert len(calls) == 5


def test_hooks_that_the_program_adds_meanwhile_stay(recorded: list[str]) -> None:
    module, optimizer = Module(), object()
    recording = profiling._Recording(module, 1)
    recording.begin()
    module.step(optimizer)
    module._global_optimizer_post_hooks[7] = lambda *_: None
    module.step(optimizer)
    assert list(module._global_optimizer_post_hooks) == [7]


def test_a_recording_without_a_step_leaves_nothing(recorded: list[str]) -> None:
    module = Module()
    own = module._global_optimizer_post_hooks
    recording = profiling._Recording(module, 1)
    recording.begin()
    assert not recording.hurry()
    module.step(object())
    assert module._global_optimizer_post_hooks is own
    assert recorded == []


def test_when_the_time_is_up_the_step_that_runs_is_the_last(recorded: list[str]) -> None:
    module, optimizer = Module(), object()
    recording = profiling._Recording(module, 50)
    recording.begin()
    module.step(optimizer)
    assert recording.hurry()
    module.step(optimizer)
    module.step(optimizer)
    assert recorded == ["start", "stop"]


def test_an_error_of_the_profiler_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise RuntimeError("the program's own profiler runs")

    monkeypatch.setattr(profiling, "_started", failing)
    module = Module()
    recording = profiling._Recording(module, 1)
    recording.begin()
    module.step(object())
    assert recording.ended.is_set()
    assert str(recording.error) == "the program's own profiler runs"
    assert module._global_optimizer_post_hooks == {}


def test_a_step_within_a_step_does_not_count(recorded: list[str]) -> None:
    """Horovod's optimizers call the step of the user's."""
    module, optimizer = Module(), object()
    recording = profiling._Recording(module, 2)
    recording.begin()

    class Nested:
        inner = False

        def step(self) -> None:
            if not self.inner:
                self.inner = True
                self.step()
                self.inner = False
            for hook in module._global_optimizer_post_hooks.values():
                hook(optimizer, (), {})

    nested = Nested()
    for _ in range(3):
        nested.step()
    assert recorded == ["start", "step", "stop"]


def test_an_older_answer_a_missing_trace_and_a_link_are_no_traces(tmp_path: Path) -> None:
    recorder = profiler(tmp_path)
    folder, scratch = tmp_path / "profiles", tmp_path / "scratch"
    scratch.mkdir()
    part: Any = SimpleNamespace(pid=4711, rank=None, files={}, missing=[])
    answers = [{"id": "earlier", "rank": None}, {"id": ID, "error": "no step"}, {"id": ID, "rank": 0}]
    for answer in answers:
        recorder._take_trace(Wanted(ID, 3, None), part, json.dumps(answer).encode())
    (folder / "4711.trace").symlink_to("/etc/passwd")
    recorder._take_trace(Wanted(ID, 3, None), part, json.dumps(answers[-1]).encode())
    recorder._take_trace(Wanted(ID, 3, None), part, b"{")
    recorder._take_trace(Wanted(ID, 3, None), part, None)
    assert part.files == {}
    assert len(part.missing) == 6
    assert part.missing[1] == "no trace: no step"
    assert "Too many levels of symbolic links" in part.missing[3]
