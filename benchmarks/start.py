"""From submit to user code on a warm local environment, one learner, a plain command, without and with packages that
were built before; beside starting the same command in the same environment by hand."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.e2e.stack import Stack, lines, manifest

from benchmarks.table import median, show, spread

GOAL = 0.4
"""Seconds that Weft may add."""
PACKAGES_GOAL = 0.3
"""Seconds that packages which were built before may add to a start."""
ROUNDS = 10
PACKAGES = ["einops", "humanize", "tabulate", "tqdm", "wrapt"]
COMMAND = "python -c 'import time; print(time.time(), flush=True)'"


def measure(stack: Stack, folder: Path) -> None:
    with_packages = {"name": "python", "version": "3.11", "command": COMMAND, "packages": PACKAGES}
    stack.train(manifest(COMMAND), None).wait()  # builds the environment
    stack.train(manifest("", framework=with_packages), None).wait()  # builds the packages
    python = environment_python(stack, "python")
    by_hand, by_weft, whole, packaged = [], [], [], []
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
        begun = time.time()
        job = stack.train(manifest("", framework=with_packages), None).wait()
        packaged.append(float(lines(job)[0]) - begun)
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
                f"weft: to user code, with {len(PACKAGES)} packages",
                spread(packaged, digits=2),
                f"{median(packaged) - median(by_hand):.2f} s",
                f"< {median(by_weft) + PACKAGES_GOAL:.2f} s",
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
