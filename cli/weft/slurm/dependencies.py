"""``--dependency``: the jobs that must end before, as the manifest's ``after`` names them."""

from __future__ import annotations

_ENDINGS = {"afterok": "completed", "afternotok": "failed", "afterany": "ended"}
_ACCEPTED = "afterok:JOB, afterany:JOB or afternotok:JOB"
_REFUSED = {
    "after": "Weft can't wait for the start of a job: submit this job when the other job has started",
    "singleton": "name the jobs that must end before",
    "aftercorr": "submit each job of the array by itself, with afterok:JOB",
}


def predecessors(dependency: str) -> list[dict[str, str]]:
    """The jobs of ``afterok:JOB:JOB,afterany:JOB``, each with the ending that it must have.

    Raises:
        ValueError: Weft can't wait for that; the text says what it accepts.
    """
    if "?" in dependency:
        raise ValueError("a job waits for all jobs that it names: expected ',' between them, found '?'")
    found = []
    for condition in dependency.split(","):
        kind, *jobs = condition.split(":")
        if kind in _REFUSED:
            raise ValueError(_REFUSED[kind])
        if kind not in _ENDINGS or not jobs or not all(jobs):
            raise ValueError(f"expected {_ACCEPTED}, found {condition!r}")
        found += [{"job": job, "on": _ENDINGS[kind]} for job in jobs]
    return found
