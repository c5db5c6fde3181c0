"""Dependencies between jobs: Slurm's conditions as the manifest's ``after``."""

from __future__ import annotations

import re

_ENDINGS = {"afterok": "completed", "afternotok": "failed", "afterany": "ended"}
_OTHER_CONDITIONS = {
    "after": "a job starts as soon as there is room: submit it when the other one has started",
    "singleton": "submit it when the other jobs of its name have ended",
    "aftercorr": "submit each job of the array when the other one has ended",
}


def read_dependency(dependency: str) -> list[dict[str, str]]:
    """The value of ``after`` that does what ``afterok:JOB:JOB,afterany:JOB`` does.

    Raises:
        ValueError: with a message for the user.
    """
    if "?" in dependency:
        raise ValueError("a job waits for all of several jobs, and not for any of them: separate them by commas")
    found = []
    for condition in dependency.split(","):
        kind, *jobs = condition.split(":")
        if kind in _OTHER_CONDITIONS:
            raise ValueError(_OTHER_CONDITIONS[kind])
        if kind not in _ENDINGS or not jobs or not all(re.fullmatch(r"job-[a-z0-9]+", job) for job in jobs):
            accepted = "afterok:JOB, afterany:JOB or afternotok:JOB, with ids that `weft sbatch` prints"
            raise ValueError(f"expected {accepted}, found {condition!r}")
        found += [{"job": job, "on": _ENDINGS[kind]} for job in jobs]
    return found
