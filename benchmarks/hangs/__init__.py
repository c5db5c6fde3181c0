"""Planted hangs: whether a real installation finds the cause of each, and raises no alarm about programs that work.

A job runs for every two cores, as the ranks of Horovod spin.
``WEFT_BENCH_HANGS`` (all) names some: ``torchrun/stopped``, or ``quiet:torchrun/saving`` for a program that works.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TypeVar

from tests.e2e.stack import Stack, eventually, manifest, running

import weft
from benchmarks.hangs.cases import HANGS, PROGRAMS, QUIET, Hang, Kind, lines
from benchmarks.table import show
from weft.errors import Conflict, Unavailable

T = TypeVar("T")
CHOSEN = os.environ.get("WEFT_BENCH_HANGS", "").split()
AFTER = 10
"""Seconds without progress until a job counts as stalled."""
GOAL, SECONDS_OF_VERDICT = 19 / 20, 30.0
_PATIENCE = 600.0
"""Seconds for the verdicts of jobs that started together."""
_AT_ONCE = max(1, len(os.sched_getaffinity(0)) // 2)
_NOTICED = "no progress "
_VERDICT = "verdict: "
_LAST = ("step 2", "this rank has no work")
"""What a rank logs before it hangs."""


def measure(folder: Path) -> None:
    hangs = [hang for hang in HANGS if not CHOSEN or _title(hang.kind, hang.name) in CHOSEN]
    quiet = [(kind, name) for kind, name in QUIET if not CHOSEN or f"quiet:{_title(kind, name)}" in CHOSEN]
    rows: list[list[str]] = []
    right = 0
    with running(folder / "home") as stack:
        of_kinds = (list(group) for _, group in groupby(hangs, key=lambda hang: hang.kind.title))
        for batch in chain.from_iterable(map(_batches, of_kinds)):
            for hang, wrong, noticed, verdict, seconds in _hang(stack, batch):
                right += not wrong
                print(f"{_title(hang.kind, hang.name)}: {wrong or 'right'} ({verdict})", flush=True)
                rows.append([_title(hang.kind, hang.name), wrong or "right", noticed, seconds, verdict])
        alarms = [row for batch in _batches(quiet) for row in _alarms(stack, batch)]
    show(
        f"Planted hangs, after: {AFTER}s: {right} of {len(hangs)} verdicts are right",
        ["hang", "verdict", "noticed by", f"from there to the verdict, goal ≤ {SECONDS_OF_VERDICT:.0f} s", "in words"],
        rows,
    )
    show(f"Programs that work, after: {AFTER}s", ["program", "how it ended", "alarms"], alarms)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def _title(kind: Kind, name: str) -> str:
    return f"{kind.title}/{name}".replace(", ", "-")


def _job(stack: Stack, kind: Kind, program: str, name: str, ranks: int) -> weft.Job:
    return stack.train(
        manifest(
            "",
            name=name.replace("_", "-"),
            learners=ranks,
            cpus=0.05,
            memory=kind.memory,
            framework={**kind.framework, "command": f"exec python {program} {name}"},
            stall={"after": f"{AFTER}s", "action": "warn"},
        ),
        PROGRAMS,
    )


def _alarms(stack: Stack, quiet: Sequence[tuple[Kind, str]]) -> list[list[str]]:
    """How these programs ended, and the warnings about them."""
    jobs = [_job(stack, kind, kind.quiet, name, 2) for kind, name in quiet]
    rows = []
    for (kind, name), job in zip(quiet, jobs, strict=True):
        done = job.wait(timeout=_PATIENCE, check=False)
        alarms = [event.message for event in job.events() if event.message.startswith(_NOTICED)]
        rows.append([_title(kind, name), done.state, "; ".join(alarms) or "none"])
        print(*rows[-1], sep=": ", flush=True)
    return rows


def _hang(stack: Stack, hangs: Sequence[Hang]) -> Iterator[tuple[Hang, str, str, str, str]]:
    """What is wrong with the verdict on each of these hangs, how it was noticed, the verdict, and how long it took."""
    jobs = [_job(stack, hang.kind, hang.kind.program, hang.name, hang.ranks) for hang in hangs]
    try:
        end = time.monotonic() + _PATIENCE
        for hang, job in zip(hangs, jobs, strict=True):
            try:
                verdict = eventually(partial(_event, job, _VERDICT), "verdict", max(1.0, end - time.monotonic()))
            except AssertionError:
                state = job.refresh()
                yield hang, f"none; {state.state}: {state.reason}", "", "", ""
                continue
            noticed = _event(job, _NOTICED)
            assert noticed is not None
            assert noticed.at is not None
            assert verdict.at is not None
            seconds = (verdict.at - noticed.at).total_seconds()
            how = "idleness" if "nothing logged" in noticed.message else "looks"
            wrong = _wrong(hang, verdict)
            if seconds > SECONDS_OF_VERDICT:
                wrong.append("late")
            yield hang, "; ".join(wrong), how, verdict.message.removeprefix(_VERDICT), f"{seconds:.1f} s"
    finally:
        for job in jobs:
            with suppress(Conflict):  # it has ended by itself
                job.halt(grace_seconds=0)


def _event(job: weft.Job, begin: str) -> weft.Event | None:
    """The first warning that begins so, after the job's last good step. Earlier warnings are about a busy machine, on
    which the imports may take longer than a hang."""
    try:
        said = [line.t / 1000 for line in job.logs() if line.text.startswith(_LAST)]
        warnings = [event for event in job.events() if event.kind == "warning" and event.message.startswith(begin)]
    except Unavailable:  # a machine that is too busy to answer
        return None
    return next((event for event in warnings if said and event.at and event.at.timestamp() > max(said)), None)


def _wrong(hang: Hang, verdict: weft.Event) -> list[str]:
    """What a verdict says that is not so."""
    data = verdict.data
    ranks = {rank["rank"]: rank for rank in data["ranks"]}
    wrong = []
    if data["blamed"] != list(hang.blamed):
        wrong.append(f"blames {data['blamed']}, not {list(hang.blamed)}")
    for role, of in (("blamed", hang.blamed), ("waits", hang.waiting)):
        expected = lines(hang.kind.program, hang.name, role)
        found = {ranks[rank]["at"] for rank in of}
        if expected and found != expected:
            wrong.append(f"{role} at {', '.join(sorted(found))}, not {', '.join(sorted(expected))}")
    states = {ranks[rank]["state"] for rank in hang.blamed}
    if hang.blamed and states != {hang.state}:
        wrong.append(f"says {', '.join(sorted(states))}, not {hang.state}")
    collective = data["collective"] or {}
    if hang.collective and collective.get("operation") != hang.collective:
        wrong.append(f"waits in {collective.get('operation')}, not {hang.collective}")
    if hang.number is not None and collective.get("number") != hang.number:
        wrong.append(f"collective #{collective.get('number')}, not #{hang.number}")
    if hang.says not in verdict.message:
        wrong.append(f"does not say {hang.says!r}")
    return wrong
