"""The platform's share: the same script on two processes, by `python -m torch.distributed.run` or `horovodrun` alone,
and as a Weft job on two learners (data from S3, model to S3, logs, life cycle). Alternating, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.stack import REPOSITORY, Stack

from benchmarks.start import environment_python
from benchmarks.table import median, show, spread

ROUNDS = 3
EXAMPLES = REPOSITORY / "examples"
CASES = {
    # example: (image, how its users start it without Weft)
    "mnist-torchrun": ("pytorch", ["-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"]),
    "mnist-horovod-pytorch": ("horovod", ["-m", "horovod.runner.launch", "-np", "2", "--gloo", "python", "train.py"]),
}


def measure(stack: Stack, folder: Path) -> None:
    data = folder / "mnist"
    subprocess.run([sys.executable, str(EXAMPLES / "data/digits.py"), str(data)], check=True, capture_output=True)
    stack.weft("data", "put", str(data), "default:mnist-data")
    stack.weft("data", "create", "default:mnist-models")
    rows = []
    for name, (image, words) in CASES.items():
        _by_weft(stack, name)  # warm: the environment is built, the data is in the node's cache
        python = environment_python(stack, image)
        alone, platform = [], []
        for round_ in range(ROUNDS):
            alone.append(_by_hand(python, words, name, data, folder / f"{name}-{round_}"))
            platform.append(_by_weft(stack, name))
        share = 1 - median(alone) / median(platform)
        tool = "horovodrun" if "horovod" in name else "torch.distributed.run"
        rows += [
            [f"{name}: {tool} alone", spread(alone), "1.00", ""],
            [f"{name}: weft", spread(platform), f"{median(platform) / median(alone):.2f}", f"{share:.0%}"],
        ]
    show(
        f"Whole wall time, {ROUNDS} rounds, seconds: median (min to max)",
        ["what", "seconds", "ratio", "platform's share"],
        rows,
    )


def _by_hand(python: Path, words: list[str], example: str, data: Path, out: Path) -> float:
    folders = {name: out / name.lower() for name in ("RESULT_DIR", "CHECKPOINT_DIR", "LOG_DIR")}
    for path in folders.values():
        path.mkdir(parents=True)
    environment = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "DATA_DIR": str(data),
        **{name: str(path) for name, path in folders.items()},
    }
    while True:
        begun = time.perf_counter()
        done = subprocess.run(
            [str(python), *words], cwd=EXAMPLES / example, env=environment, check=False, capture_output=True, text=True
        )
        if done.returncode == 0:
            return time.perf_counter() - begun
        # At times PyTorch aborts at the end of a process, from which Weft keeps it (weft_trainer.program.at_exit).
        if "terminate called" not in done.stderr:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")


def _by_weft(stack: Stack, example: str) -> float:
    begun = time.perf_counter()
    stack.client.train(EXAMPLES / example / "manifest.yml", EXAMPLES / example).wait()
    return time.perf_counter() - begun
