"""Dependencies between jobs, which Weft does not have: what a shell does instead."""

from __future__ import annotations

_CONDITIONS = {"afterany": "{wait};", "afterok": "{wait} &&", "afternotok": "! {wait} &&"}
"""What stands in a shell before the next command. Those that go on in any case come first."""
_OTHER_CONDITIONS = {
    "after": "a job starts as soon as there is room: submit it when the other one has started",
    "singleton": "submit it when the other jobs of its name have ended",
    "aftercorr": "submit each job of the array when the other one has ended",
}


def instead_of(dependency: str) -> str:
    """What does the same as ``afterok:JOB:JOB,afterany:JOB``, in words."""
    if "?" in dependency:
        return "`weft logs --follow JOB` waits for one of the jobs; leave out the others"
    jobs: dict[str, list[str]] = {kind: [] for kind in _CONDITIONS}
    for condition in dependency.split(","):
        kind, *ids = condition.split(":")
        if kind in _OTHER_CONDITIONS:
            return _OTHER_CONDITIONS[kind]
        if kind not in jobs or not all(ids) or not ids:
            return f"expected afterok:JOB, afterany:JOB or afternotok:JOB, found {condition!r}"
        jobs[kind] += ids
    waits = [_CONDITIONS[kind].format(wait=f"weft logs --follow {job}") for kind in jobs for job in jobs[kind]]
    return f"in a shell, `{' '.join(waits)} weft sbatch SCRIPT` does the same"
