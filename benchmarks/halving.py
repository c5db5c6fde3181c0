"""Successive halving beside random search: the example `sweep-mnist` as it is, and without rungs.

The same seed makes the same trials, which `random` trains to the end. The epochs are those that the programs have
logged, over all attempts. ``WEFT_BENCH_TRIALS`` (18) trials each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.stack import REPOSITORY, Stack

from benchmarks.table import show

GOAL = 0.5
"""Of the epochs of random search, for the same accuracy."""
SAME = 0.005
"""Accuracies that differ by less are the same: one of the 360 held-out digits makes 0.0028."""
TRIALS = int(os.environ.get("WEFT_BENCH_TRIALS", "18"))
_EXAMPLE = REPOSITORY / "examples/sweep-mnist"


def measure(stack: Stack, folder: Path) -> None:
    """Print the table."""
    data = folder / "halving"
    subprocess.run([sys.executable, str(REPOSITORY / "examples/data/digits.py"), str(data)], check=True)
    stack.weft("data", "put", str(data), "default:mnist-data")
    found = {search: _sweep(stack, search) for search in ("random", "asha")}
    epochs, accuracy = ({search: told[at] for search, told in found.items()} for at in (0, 1))
    ratio = epochs["asha"] / epochs["random"]
    as_good = accuracy["asha"] > accuracy["random"] - SAME
    rows = [[search, f"{epochs[search]:.0f}", f"{accuracy[search]:.4f}"] for search in found]
    reached = "met" if as_good and ratio <= GOAL else "missed"
    title = f"sweep-mnist, {TRIALS} trials: {ratio:.2f} of the epochs; goal {GOAL} at the same accuracy, {reached}"
    show(title, ["search", "epochs", "best accuracy"], rows)


def _sweep(stack: Stack, search: str) -> tuple[float, float]:
    """The epochs that its trials have trained, and the accuracy of the best one."""
    manifest: dict[str, Any] = yaml.safe_load((_EXAMPLE / "manifest.yml").read_text())
    manifest["sweep"] |= {"search": search, "trials": TRIALS}
    if search == "random":
        last = manifest["sweep"].pop("rungs")["max"]
        command = manifest["framework"]["command"]
        manifest["framework"]["command"] = command.replace("${sweep.epochs}", str(last))
    client = stack.client
    ended = client.sweeps.wait(client.sweep(manifest, _EXAMPLE).id, 3600)
    if ended.state != "COMPLETED" or ended.best is None or ended.best.value is None:
        raise RuntimeError(f"the sweep {ended.id} is {ended.state}: {ended.reason}")
    jobs = [trial.job for trial in client.sweeps.trials(ended.id) if trial.job is not None]
    epochs = sum(line.text.startswith("epoch ") for job in jobs for line in client.jobs.logs(job))
    return epochs, ended.best.value
