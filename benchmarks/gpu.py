"""On a machine with an NVIDIA GPU: ResNet-50 through the agent beside the bare script, alternating; and what mixed
precision gains. In the environment that is there; images are synthetic, so data and S3 have no part in it.

WEFT_BENCH_PARTS=agent,torchrun,precision chooses, WEFT_BENCH_ROUNDS and WEFT_BENCH_BATCH change the size."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.stack import REPOSITORY, Stack, lines, running, series
from tests.gpu.conftest import gpu_manifest
from tests.gpu.machine import GpuMachine, NotHere, find_gpu

from benchmarks.table import median, show, spread

GOAL = 0.99
# Read at import: a stack's own environment has no WEFT_… of ours.
PARTS = os.environ.get("WEFT_BENCH_PARTS", "agent,torchrun,precision").split(",")
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "3"))
BATCH = int(os.environ.get("WEFT_BENCH_BATCH", "256"))
PROGRAM = REPOSITORY / "examples" / "imagenet-resnet50" / "pytorch"
TINY = (
    "--depth 18 --width 16 --image-size 64 --batch-size 8 --warmup-batches 1 --iterations 2 --batches-per-iteration 2"
)


def measure() -> int:
    """Exit code 1 where there is nothing to measure on."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as name:
        folder = Path(name)
        (folder / "pretend").mkdir()
        try:
            gpu = find_gpu(folder / "pretend")
        except NotHere as why:
            print(f"gpu: {why}", file=sys.stderr)
            return 1
        with running(folder / "home", gpu.variables) as stack:
            bench = Bench(gpu, stack, folder)
            for part in PARTS:
                {"agent": bench.agent, "torchrun": bench.torchrun, "precision": bench.precision}[part]()
    return 0


@dataclass(frozen=True)
class Way:
    """One way to run the program; gives its images/s."""

    name: str
    run: Callable[[], float]


class Bench:
    def __init__(self, gpu: GpuMachine, stack: Stack, folder: Path) -> None:
        self._gpu, self._stack, self._folder = gpu, stack, folder
        self._title = f"ResNet-50 on synthetic images, {gpu.torch}"

    def agent(self) -> None:
        self._compare(
            f"{self._title}, batch {BATCH}, bfloat16, images/s: median (min to max) of {ROUNDS} rounds",
            [
                Way("the bare script", lambda: self._bare(self._command("bfloat16"))),
                Way("weft run", lambda: self._alone(self._command("bfloat16"))),
                Way("weft: a job", lambda: self._job(self._command("bfloat16"))),
            ],
        )

    def torchrun(self) -> None:
        self._compare(
            f"{self._title}, batch {BATCH}, bfloat16, DistributedDataParallel in one process, images/s",
            [
                Way("torch.distributed.run alone", self._bare_torchrun),
                Way("weft: a job, launcher torchrun", lambda: self._job(self._command("bfloat16"), "torchrun")),
            ],
        )

    def precision(self) -> None:
        rows, plain = [], 0.0
        for name in ("float32", "float16", "bfloat16"):
            rate, memory = self._measured(self._command(None if name == "float32" else name))
            plain = plain or rate
            rows.append([name, f"{rate:.0f}", f"{rate / plain:.2f}", memory])
        columns = ["precision", "images/s", "ratio", "most of the GPU's memory"]
        show(f"{self._title}, batch {BATCH}, as jobs; convolutions of float32 in TF32", columns, rows)

    def _compare(self, title: str, ways: list[Way]) -> None:
        """In turns, so that a drift affects all alike; a ratio is of one round."""
        found: dict[str, list[float]] = {way.name: [] for way in ways}
        for round_ in range(ROUNDS):
            for way in ways if round_ % 2 == 0 else reversed(ways):
                found[way.name].append(way.run())
                print(f"  {way.name}: {found[way.name][-1]:.1f} images/s", file=sys.stderr, flush=True)
        first = found[ways[0].name]
        rows = []
        for way in ways:
            ratios = [mine / theirs for mine, theirs in zip(found[way.name], first, strict=True)]
            goal = f"≥ {GOAL}" if way.name.startswith("weft") else ""
            rows.append([way.name, spread(found[way.name]), f"{median(ratios):.3f}", goal])
        show(title, ["what", "images/s", "ratio", "goal"], rows)

    def _command(self, amp: str | None) -> str:
        size = TINY if self._gpu.rehearsal else f"--batch-size {BATCH}"
        return f"python train.py --benchmark {size}" + (f" --amp {amp}" if amp else "")

    # --- the ways ---

    def _bare(self, command: str, *before: str, **variables: str) -> float:
        words = [str(self._gpu.python), *before, *shlex.split(command)[1:]]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", **self._gpu.variables, **variables}
        done = subprocess.run(words, cwd=PROGRAM, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return _rate(done.stdout.splitlines())

    def _bare_torchrun(self) -> float:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
        return self._bare(self._command("bfloat16"), *launch)

    def _alone(self, command: str) -> float:
        path = self._folder / "manifest.yml"
        wanted = self._manifest(command, "none")
        del wanted["data_stores"]
        path.write_text(yaml.safe_dump(wanted))
        out = tempfile.mkdtemp(prefix="run-", dir=self._folder)
        done = self._stack.weft("run", str(path), str(PROGRAM), "--out", f"{out}/out", timeout=600)
        return _rate(done.stdout.splitlines())

    def _job(self, command: str, launcher: str = "none") -> float:
        return _rate(lines(self._stack.train(self._manifest(command, launcher), PROGRAM).wait(timeout=600)))

    def _measured(self, command: str) -> tuple[float, str]:
        """Images/s, and the most memory that NVML has reported."""
        job = self._stack.train(self._manifest(command, "none"), PROGRAM).wait(timeout=600)
        memory = series(self._stack, job, "system").get(("system/gpu0_memory_bytes", 1)) or {}
        return _rate(lines(job)), f"{memory['max'] / (1 << 30):.1f} GiB" if "max" in memory else "–"

    def _manifest(self, command: str, launcher: str) -> dict[str, Any]:
        cpus = min(4, os.cpu_count() or 1)
        return gpu_manifest(self._gpu, command, launcher=launcher, cpus=cpus, memory="16 GiB")


def _rate(output: list[str]) -> float:
    for line in reversed(output):
        if "benchmark {" in line:
            return float(json.loads(line.split("benchmark ", 1)[1])["images_per_second"])
    raise RuntimeError("\n".join(["the program has measured nothing:", *output]))
