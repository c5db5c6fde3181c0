"""GPUs on the embedded stack: their assignment, the learners' view of them, and their metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.stack import REPOSITORY, Stack, eventually, lines, saw, series
from tests.gpu.conftest import PROGRAMS, gpu_manifest
from tests.gpu.machine import GpuMachine

import weft

TIMEOUT = 900
pytestmark = pytest.mark.timeout(TIMEOUT)


def told(job: weft.Job, word: str, learner: int = 1) -> list[Any]:
    """What a program has printed as JSON behind ``word``."""
    return [json.loads(line.split(f"{word} ", 1)[1]) for line in lines(job, learner) if f"{word} {{" in line]


def completed(stack: Stack, wanted: dict[str, Any], code: Path = PROGRAMS) -> weft.Job:
    return stack.train(wanted, code).wait(timeout=TIMEOUT)


def test_the_engine_has_the_machines_gpus(gpu: GpuMachine, gpu_stack: Stack) -> None:
    [engine] = gpu_stack.json("engines")
    assert engine["capacity"]["gpus"] == len(gpu.uuids)


def test_a_learner_sees_the_gpus_that_it_was_given(gpu: GpuMachine, gpu_stack: Stack) -> None:
    [seen] = told(completed(gpu_stack, gpu_manifest(gpu, "python seen.py")), "seen")
    assert seen["count"] == "1"
    assert seen["visible"] == "0"
    assert seen["uuids"] == ([] if gpu.rehearsal else [gpu.uuids[0]])


def test_a_learner_without_gpus_sees_none(gpu: GpuMachine, gpu_stack: Stack) -> None:
    [seen] = told(completed(gpu_stack, gpu_manifest(gpu, "python seen.py", gpus=0)), "seen")
    assert (seen["visible"], seen["count"], seen["uuids"]) == ("", "0", [])


def test_two_learners_see_a_gpu_each(gpu: GpuMachine, gpu_stack: Stack) -> None:
    if len(gpu.uuids) < 2:
        pytest.skip("NOT RUN: this machine has one GPU, and two are needed")
    job = completed(gpu_stack, gpu_manifest(gpu, "python seen.py", learners=2))
    [first], [second] = told(job, "seen", 1), told(job, "seen", 2)
    assert {*first["uuids"], *second["uuids"]} == {*gpu.uuids[:2]}
    assert len(first["uuids"]) == len(second["uuids"]) == 1


def test_more_gpus_than_there_are_never_fit(gpu: GpuMachine, gpu_stack: Stack) -> None:
    job = gpu_stack.train(gpu_manifest(gpu, "python seen.py", gpus=len(gpu.uuids) + 1), PROGRAMS)
    ended = job.wait(timeout=TIMEOUT, check=False)
    assert ended.state == "FAILED"
    assert "GPU" in ended.reason


def test_two_jobs_that_want_all_gpus_run_one_after_the_other(gpu: GpuMachine, gpu_stack: Stack, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"gpus": len(gpu.uuids), "cpus": 0.25}  # nothing but the GPUs keeps them apart
    go = tmp_path / "go"
    first = gpu_stack.train(gpu_manifest(gpu, "python busy.py", env={"GO": str(go)}, **wanted), PROGRAMS)
    eventually(saw(first, "begin"), "the first job holds the GPU", TIMEOUT)
    second = gpu_stack.train(gpu_manifest(gpu, "python busy.py", env={"GO": str(go)}, **wanted), PROGRAMS)
    eventually(lambda: "GPU" in gpu_stack.client.jobs.get(second.id).reason, "the second waits for the GPU", TIMEOUT)
    assert gpu_stack.client.jobs.get(second.id).state == "QUEUED"
    go.touch()
    assert first.wait(timeout=TIMEOUT).state == second.wait(timeout=TIMEOUT).state == "COMPLETED"
    times = [{line.split()[0]: float(line.split()[1]) for line in lines(job)} for job in (first, second)]
    assert times[0]["end"] <= times[1]["begin"]


def test_what_nvml_tells_arrives_as_series(gpu: GpuMachine, gpu_stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = gpu_stack.train(gpu_manifest(gpu, "python busy.py", env={"GO": str(go)}), PROGRAMS)

    def found() -> dict[str, dict[str, Any]] | None:
        there = series(gpu_stack, job, "system")
        ours = {name.removeprefix("system/"): metric for (name, _), metric in there.items() if "gpu" in name}
        percent = ours.get("gpu0_percent")
        return ours if percent and percent["points"] >= 2 and percent["max"] > 0 else None

    try:
        seen = eventually(found, "the GPU's load arrives", TIMEOUT)
    finally:
        go.touch()
    assert job.wait(timeout=TIMEOUT).state == "COMPLETED"
    assert set(seen) == {"gpu0_percent", "gpu0_memory_bytes", "gpu0_temperature_c", "gpu0_power_w"}
    assert 0 < seen["gpu0_percent"]["max"] <= 100
    assert 0 < seen["gpu0_temperature_c"]["max"] < 120
    assert seen["gpu0_power_w"]["max"] > 10
    if not gpu.rehearsal:
        assert seen["gpu0_memory_bytes"]["max"] >= 1 << 30
    assert "gpu0_percent" in gpu_stack.weft("metrics", job.id, "--system").stdout


@pytest.mark.parametrize("command", ["python collectives.py", "python -m torch.distributed.run collectives.py"])
def test_torchrun_with_nccl(gpu: GpuMachine, gpu_stack: Stack, command: str) -> None:
    """One process a GPU. With one GPU that is a gang of one: NCCL starts and works, but has nobody to talk to."""
    job = completed(gpu_stack, gpu_manifest(gpu, command, launcher="torchrun", gpus=len(gpu.uuids)))
    said = told(job, "collectives")
    assert len(said) == len(gpu.uuids)
    for report in said:
        assert report["backend"] == ("gloo" if gpu.rehearsal else "nccl")
        assert report["device"] == gpu.device
        assert report["world"] == len(gpu.uuids)
        assert report["losses"][-1] < report["losses"][0] / 2


def check_precisions(said: list[dict[str, Any]]) -> None:
    assert [(report["asked"], report["made"]) for report in said] == [
        (name, name) for name in ("float32", "bfloat16", "float16")
    ]
    plain = said[0]
    for report in said:
        assert abs(report["first"] - plain["first"]) < 0.05 * plain["first"], "another network than in single precision"
        assert report["last"] < plain["first"] / 10


def test_mixed_precision_beside_single(gpu: GpuMachine, gpu_stack: Stack) -> None:
    check_precisions(told(completed(gpu_stack, gpu_manifest(gpu, "python precision.py")), "precision"))


def test_a_gpu_without_memory_left(gpu: GpuMachine, gpu_stack: Stack) -> None:
    job = gpu_stack.train(gpu_manifest(gpu, "python hog.py"), PROGRAMS).wait(timeout=TIMEOUT, check=False)
    assert job.state == "FAILED"
    assert job.reason.startswith(
        "learner 1: the GPU ran out of memory (exit code 1): Tried to allocate 4.00 GiB. GPU 0 has a total capacity of "
    )
    assert "a smaller batch, mixed precision" in job.reason
    completed(gpu_stack, gpu_manifest(gpu, "python seen.py"))  # the memory is free again


@pytest.mark.parametrize("launcher", ["none", "torchrun"])
def test_resnet_50(gpu: GpuMachine, gpu_stack: Stack, launcher: str) -> None:
    size = "--depth 18 --width 16 --image-size 64 --batch-size 8" if gpu.rehearsal else "--batch-size 64"
    command = (
        f"python train.py --benchmark --amp bfloat16 --warmup-batches 2 --iterations 2 --batches-per-iteration 2 {size}"
    )
    wanted = gpu_manifest(gpu, command, launcher=launcher, memory="16 GiB")
    [measured] = told(completed(gpu_stack, wanted, REPOSITORY / "examples/imagenet-resnet50/pytorch"), "benchmark")
    assert (measured["device"], measured["devices"]) == (gpu.device, 1)
    assert measured["images_per_second"] > 0
