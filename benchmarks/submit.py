"""How long POST /api/v1/jobs takes for one client, compared with a round trip to the same server that does nothing.

The jobs name an engine slot that is taken, so they queue: only the answer is measured, not the training.
"""

from __future__ import annotations

import time
import tomllib
import uuid
from pathlib import Path

import httpx
import yaml
from tests.e2e.stack import Stack, manifest

from benchmarks.table import median, show, spread

GOAL = 0.050  # seconds
ROUNDS = 100


def measure(stack: Stack, folder: Path) -> None:
    profile = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
    cpus = stack.json("engines")[0]["capacity"]["cpus"]
    stack.train(manifest("sleep 3600", cpus=cpus), None)
    body = {"manifest": yaml.safe_dump(manifest("true", cpus=cpus))}
    posts, reads = [], []
    with httpx.Client(base_url=profile["url"], headers={"Authorization": f"Bearer {profile['token']}"}) as client:
        for number in range(ROUNDS + 10):
            begun = time.perf_counter()
            client.get("/healthz").raise_for_status()
            read = time.perf_counter()
            client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": uuid.uuid4().hex}).raise_for_status()
            posted = time.perf_counter()
            if number >= 10:  # the first ones open connections and fill caches
                reads.append(read - begun)
                posts.append(posted - read)
    for job in stack.client.jobs.list():
        job.delete()
    show(
        f"Submit: one client, {ROUNDS} times, milliseconds: median (min to max)",
        ["what", "ms", "ratio", "goal"],
        [
            ["GET /healthz (the bare round trip)", spread(reads, 1000), "1.0", ""],
            [
                "POST /api/v1/jobs",
                spread(posts, 1000),
                f"{median(posts) / median(reads):.1f}",
                f"< {GOAL * 1000:.0f} ms",
            ],
        ],
    )
