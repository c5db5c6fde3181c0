"""From submit to user code on a warm local environment, one learner, a plain command; beside starting the same command
in the same environment by hand. :mod:`.packages` has what packages add."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.e2e.stack import Stack, lines, manifest

from benchmarks.table import median, show, spread

GOAL = 0.4
"""Seconds that Weft may add."""
ROUNDS = 10
COMMAND = "python -c 'import time; print(time.time(), flush=True)'"


def measure(stack: Stack, folder: Path) -> None:
    stack.train(manifest(COMMAND), None).wait()  # builds the environment
    python = environment_python(stack, "python")
    by_hand, by_weft, whole = [], [], []
    for _ in range(ROUNDS):
        begun = time.time()
        out = subprocess.run(
            ["bash", "-c", COMMAND], env={"PATH": f"{python.parent}:/usr/bin:/bin"}, capture_output=True, text=True
        )
        by_hand.append(float(out.stdout) - begun)
        begun = time.time()
        job = stack.train(manifest(COMMAND), None)
        job.wait()
        whole.append(time.time() - begun)
        by_weft.append(float(lines(job)[0]) - begun)
    show(
        f"Start: submit to the first line of user code, {ROUNDS} times, seconds: median (min to max)",
        ["what", "seconds", "Weft adds", "goal"],
        [
            ["the command by hand", spread(by_hand, digits=2), "", ""],
            [
                "weft: to user code",
                spread(by_weft, digits=2),
                f"{median(by_weft) - median(by_hand):.2f} s",
                f"≤ {GOAL:g} s more",
            ],
            [
                "weft: to COMPLETED, results stored",
                spread(whole, digits=2),
                f"{median(whole) - median(by_hand):.2f} s",
                "",
            ],
        ],
    )


def environment_python(stack: Stack, image: str) -> Path:
    """The interpreter of an image's environment on this machine."""
    done = subprocess.run(
        ["python", "-m", "weft_workers.environments", "python", image],
        env=stack.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())
