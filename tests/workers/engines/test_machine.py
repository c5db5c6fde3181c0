"""The resources of the machine, and their distribution to learners."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workers.engines.bench import FOREVER, Bench, until

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.engines.local.machine import Gpu, Machine, Slots, find_gpus, parse_gpus

MACHINE = Machine(
    cpus=4, memory=8 << 30, gpus=tuple(Gpu(str(n), "Tesla V100-SXM2-16GB") for n in range(4)), cores=(0, 1, 2, 3)
)


def asked(learners: int = 1, cpus: float = 1, gpus: int = 0, gpu_type: str | None = None) -> LaunchSpec:
    resources = Resources(cpus=cpus, gpus=gpus, memory=1 << 30, gpu_type=gpu_type)
    return LaunchSpec("weft-job-a-1", "inst", "prj", "job-a", 1, learners, resources, "image", "http://api", "token")


def test_each_learner_gets_gpus_and_cores_of_its_own() -> None:
    assert MACHINE.assign(asked(learners=2, cpus=2, gpus=2), []) == [
        Slots(gpus=("0", "1"), cores=(0, 1)),
        Slots(gpus=("2", "3"), cores=(2, 3)),
    ]


def test_what_others_hold_is_not_given_again() -> None:
    taken = [Slots(gpus=("0", "2"), cores=(1,))]
    assert MACHINE.assign(asked(learners=2, gpus=1), taken) == [Slots(("1",), (0,)), Slots(("3",), (2,))]
    assert MACHINE.assign(asked(learners=3, gpus=1), taken) is None


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        (asked(cpus=0.5), []),  # a part of a core
        (asked(cpus=1.5), []),
        (asked(learners=4), [Slots(cores=(3,))]),  # enough for some learners only
    ],
)
def test_cores_are_shared_where_not_every_learner_can_have_whole_ones(spec: LaunchSpec, taken: list[Slots]) -> None:
    slots = MACHINE.assign(spec, taken)
    assert slots is not None
    assert {own.cores for own in slots} == {()}


def test_cores_are_shared_where_more_are_promised_than_there_are() -> None:
    assert Machine(8, 1 << 30, (), (0, 1, 2, 3)).assign(asked(), []) == [Slots()]


@pytest.mark.parametrize(
    ("kind", "fits"),
    [("V100", True), ("tesla v100", True), ("TeslaV100", True), ("a100", False), ("v10", False), (None, True)],
)
def test_a_gpu_type_is_compared_loosely(kind: str | None, fits: bool) -> None:
    if fits:
        MACHINE.refuse(asked(gpus=1, gpu_type=kind))
    else:
        with pytest.raises(LaunchRefused, match=f"gpu_type {kind!r}: this machine has Tesla V100-SXM2-16GB"):
            MACHINE.refuse(asked(gpus=1, gpu_type=kind))


def test_the_settings_win_over_the_machine() -> None:
    machine = Machine.of(LocalSettings(cpus=3.5, gpus=2, memory=7))
    [node] = machine.capacity.nodes
    assert (node.cpus, node.gpus, node.memory) == (3.5, 2, 7)


def test_the_affinity_of_the_worker_is_respected() -> None:
    before = os.sched_getaffinity(0)
    least = {min(before)}
    os.sched_setaffinity(0, least)
    try:
        machine = Machine.of(LocalSettings(gpus=0))
    finally:
        os.sched_setaffinity(0, before)
    assert machine.cores == tuple(least)
    assert machine.cpus <= 1


LISTING = """\
GPU 0: NVIDIA H200 (UUID: GPU-aaaa-0)
GPU 1: NVIDIA H200 (UUID: GPU-aaaa-1)
  MIG 1g.18gb     Device  0: (UUID: MIG-bbbb-0)
  MIG 1g.18gb     Device  1: (UUID: MIG-bbbb-1)
GPU 2: NVIDIA H200 (UUID: GPU-aaaa-2)
"""


def test_split_gpus_count_by_their_slices() -> None:
    assert parse_gpus(LISTING) == (
        Gpu("0", "NVIDIA H200"),
        Gpu("MIG-bbbb-0", "NVIDIA H200 MIG 1g.18gb"),
        Gpu("MIG-bbbb-1", "NVIDIA H200 MIG 1g.18gb"),
        Gpu("2", "NVIDIA H200"),
    )


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pretend one, first on the PATH."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTING}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    find_gpus.cache_clear()
    yield program
    find_gpus.cache_clear()


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_are_found() -> None:
    assert [gpu.id for gpu in find_gpus()] == ["0", "MIG-bbbb-0", "MIG-bbbb-1", "2"]


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_that_are_hidden_from_the_worker_are_none_of_the_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-aaaa-0")
    assert find_gpus() == (Gpu("2", "NVIDIA H200"), Gpu("GPU-aaaa-0"))


def test_a_machine_with_a_broken_nvidia_smi_has_no_gpus(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus() == ()


REPORT = """
import json, os, pathlib
mine = {"gpus": os.environ["CUDA_VISIBLE_DEVICES"], "cores": sorted(os.sched_getaffinity(0))}
draft = pathlib.Path(OUT, "draft-" + os.environ["WEFT_RANK"])
draft.write_text(json.dumps(mine))
draft.rename(pathlib.Path(OUT, os.environ["WEFT_RANK"]))
"""


def test_slots_reach_the_learners_and_come_back_when_they_end(bench: Bench) -> None:
    cores = sorted(os.sched_getaffinity(0))
    engine = bench.new_engine(cpus=len(cores), gpus=3)
    first = bench.spec(REPORT + FOREVER, job="first", learners=len(cores), cpus=1, gpus=1)
    if len(cores) > 3:
        pytest.skip("NOT RUN: written for 3 pretend GPUs and as many cores at most")
    engine.launch(first)
    got = [json.loads(bench.said(str(rank)).read_text()) for rank in range(len(cores))]
    assert [report["gpus"] for report in got] == [str(rank) for rank in range(len(cores))]
    assert [report["cores"] for report in got] == [[core] for core in cores]
    second = bench.spec(FOREVER, job="second", gpus=3)
    with pytest.raises(EngineUnreachable, match=r"not enough GPUs are free for weft-job-second-1: 1 × 3 asked"):
        engine.launch(second)
    assert second.run_name not in engine.observe()
    bench.stop(first)
    engine.launch(second)
    until(lambda: bench.run(second).agent(0))
