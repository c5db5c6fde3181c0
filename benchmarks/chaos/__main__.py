"""`make chaos [ARGS="--jobs 60 --seed 7"]`: break everything, and count what was lost, doubled or stuck."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from tests.e2e.stack import eventually

from benchmarks.chaos.faults import Faults
from benchmarks.chaos.installation import Installation, installed
from benchmarks.chaos.jobs import Jobs, Verdict
from benchmarks.table import show

_REPORTS = Path("build/chaos")
_SETTLE = 300.0
"""Seconds after the last fault, or after the last end of a job since, in which another job must have ended."""


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if nothing was lost, doubled or stuck."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--jobs", type=int, default=1000, help="short jobs (default 1000)")
    parser.add_argument("--seed", type=int, default=20261125, help="chooses faults, victims and times")
    parser.add_argument("--engines", default="local,ray", help="local, ray or both (default)")
    parser.add_argument("--seconds", type=float, help="faults end after this time (default: 1.5 s a job)")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two faults of a kind (default 3)")
    parser.add_argument(
        "--shift", type=int, default=0, help="seconds by which an API's and a worker's clocks are wrong"
    )
    parser.add_argument("--report", type=Path, help=f"folder for the report and all logs (default: below {_REPORTS})")
    chosen = parser.parse_args(arguments)
    folder = chosen.report or _REPORTS / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{chosen.seed}"
    folder = folder.absolute()
    folder.mkdir(parents=True)
    names = chosen.engines.split(",")
    with ExitStack() as stack:
        # Learners can read it, and no files of Weft are below it.
        audit = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-chaos-", dir="/tmp")))
        audit.chmod(0o777)
        engines: dict[str, Any] = {}
        if "local" in names:
            engines["local"] = {"type": "local", "cpus": 2, "host_mounts": [str(audit)]}
        if "ray" in names:
            from tests.ray.cluster import RayCluster

            cluster = stack.enter_context(RayCluster(cpus=2, memory=4 << 30))
            engines["ray"] = {"type": "ray", "address": cluster.address, "token": cluster.token}
        installation = stack.enter_context(installed(folder, engines, chosen.shift))
        return _run(installation, audit, chosen, names, folder)


def _run(installation: Installation, audit: Path, chosen: argparse.Namespace, engines: list[str], folder: Path) -> int:
    jobs = Jobs(installation.api.url, installation.person.token, audit, engines)
    faults = Faults(installation, chosen.seed, away=min(120.0, max(4.0, chosen.jobs / 8)))
    seconds = chosen.seconds or 1.5 * chosen.jobs
    over = threading.Event()
    begun = time.monotonic()
    breaking = threading.Thread(target=faults.go_on, args=(over, chosen.pause))
    submitting = threading.Thread(target=jobs.submit, args=(chosen.jobs, seconds * 0.5))
    breaking.start()
    submitting.start()
    while time.monotonic() - begun < seconds:
        time.sleep(2)
        if not submitting.is_alive() and not jobs.open():
            break
    over.set()
    breaking.join()
    submitting.join()
    healed = last_end = time.monotonic()
    left = len(jobs.open())
    while left and time.monotonic() - last_end < _SETTLE:
        time.sleep(1)
        if (now_left := len(jobs.open())) < left:
            left, last_end = now_left, time.monotonic()
    settled = time.monotonic() - healed
    if len(jobs.ids) < chosen.jobs:
        faults.problems.append(f"only {len(jobs.ids)} of {chosen.jobs} jobs could be submitted")
    eventually(installation.ready, "an API answers")
    verdict = jobs.check(faults.disturbed)
    recovery = _recovery(installation, faults)
    report = {
        "jobs": chosen.jobs,
        "engines": engines,
        "seed": chosen.seed,
        "clocks wrong by, s": chosen.shift,
        "faults": dict(faults.counts),
        "faults that could not be done": faults.problems,
        "faults for, s": round(healed - begun),
        "ended after the last fault, s": round(settled, 1),
        "recovery, s": recovery,
        "jobs of which a process was killed": len(faults.disturbed),
        **vars(verdict),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    _print(report, verdict)
    print(f"report and logs: {folder}")
    return 0 if verdict.good and not faults.problems else 1


def _recovery(installation: Installation, faults: Faults) -> dict[str, float]:
    """Seconds from the end of each fault until the next job completed."""
    url = installation.database_url.replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        found = connection.execute("select extract(epoch from ended_at) from jobs where ended_at is not null")
        ends = sorted(float(row[0]) for row in found)
    waits = sorted(next(end - at for end in ends if end >= at) for _, at in faults.ended if ends and at <= ends[-1])
    if not waits:
        return {}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(waits[min(len(waits) - 1, int(share * len(waits)))], 2) for name, share in at.items()}


def _print(report: dict[str, Any], verdict: Verdict) -> None:
    kinds = ("lost", "twice", "stuck", "failed", "lines")
    show(
        f"{report['jobs']} jobs on {' and '.join(report['engines'])}, {verdict.attempts} attempts, "
        f"{verdict.checked_lines} lines; seed {report['seed']}",
        ["", *kinds, "recovery p50, p99, max"],
        [
            [
                "found",
                *(str(len(report[kind])) for kind in kinds),
                ", ".join(f"{seconds:g} s" for seconds in report["recovery, s"].values()) or "–",
            ]
        ],
    )
    print("faults: " + ", ".join(f"{name} {count}×" for name, count in sorted(report["faults"].items())))
    for kind in (*kinds, "repeated", "faults that could not be done"):
        for line in report[kind][:20]:
            print(f"{kind}: {line}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
