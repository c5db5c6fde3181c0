"""The jobs of a drill: one undisturbed, one killed and halted, and a second undisturbed one if the two differ."""

from __future__ import annotations

import json
import math
import random
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from weft.drill import weights
from weft.drill.causes import Cause
from weft.drill.compare import DATA, TOLERANCE, Comparison, compare
from weft.drill.record import KINDS, Disturbance, Kind, Recording, Try, curves_of, restarting
from weft.drill.weights import FileResult
from weft.errors import Conflict, TunnelBroken, Unavailable, WeftError
from weft.resources.jobs import Job
from weft.transport.tunnel import Frame

LABEL, RUN_LABEL = "drill", "drill-run"
_PAUSE = 0.5
_MOST_BYTES = 4 << 30
"""Of a file of weights."""


@dataclass(frozen=True)
class Strike:
    """A disturbance that is to come, as :mod:`weft.drill.inside` takes it."""

    kind: Kind
    saves: int
    seconds: float
    learner: int = 1
    last: tuple[str, ...] = ()
    """The files that end a save; empty: all files of a save are written together."""


@dataclass(frozen=True)
class Drill:
    """A drill.

    Attributes:
        submit: queues the job, with these values of its manifest changed.
        say: gets each piece of news.
        kills: how many disturbances.
        grace: seconds for the program to save when it is halted; None: the server's default.
    """

    submit: Callable[[Mapping[str, str]], Job]
    say: Callable[[str], None] = lambda text: None
    kills: int = 3
    seed: int = 1
    metrics: Sequence[str] = ()
    data: Sequence[str] = DATA
    tolerance: float = TOLERANCE
    grace: int | None = None
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))

    def run(self) -> Result:
        """Raises WeftError: a job can't be submitted, or the undisturbed one does not complete."""
        first = self._undisturbed("undisturbed")
        if not first.seen and not first.job.checkpoints():
            told = f"{first.job.id} has written no file into CHECKPOINT_DIR"
            nothing = Comparison(0, 0, (), (), (), (Cause("no checkpoint", told),))
            return Result(self, first.job, None, None, nothing)
        disturbed, disturbances = self._disturbed(first)
        self.say("comparing")
        before, after = _record(first.job), _record(disturbed)
        found = self._compare(first, before, after, disturbances, _weights(first.job, disturbed, self.tolerance))
        second: Job | None = None
        if found.causes and any(parting.step is not None for parting in found.partings):
            self.say("the trainings differ: a second undisturbed one shows whether two undisturbed ones do")
            second = self._undisturbed("undisturbed again").job
            noise = max(
                (file.difference.largest for file in _weights(first.job, second, self.tolerance) if file.difference),
                default=0.0,
            )
            files = found.weights
            found = self._compare(first, before, after, disturbances, files, _record(second), noise)
        notes = [*found.notes, *self._missed(disturbances), *_habits(first)]
        return Result(self, first.job, disturbed, second, replace(found, notes=tuple(notes)))

    def _compare(
        self,
        first: Undisturbed,
        before: Recording,
        after: Recording,
        disturbances: Sequence[Disturbance],
        files: Sequence[FileResult],
        second: Recording | None = None,
        noise: float = 0.0,
    ) -> Comparison:
        return compare(
            before,
            after,
            disturbances,
            weights=files,
            second=second,
            weights_noise=noise,
            metrics=self.metrics,
            data=self.data,
            tolerance=self.tolerance,
            habit=first.habit,
        )

    def _missed(self, disturbances: Sequence[Disturbance]) -> Iterator[str]:
        if len(disturbances) < self.kills:
            yield (
                f"{len(disturbances)} of {self.kills} disturbances took place; the training ended before the others. "
                "Let it save more often, or train longer"
            )

    def _values(self, part: str, **values: str) -> dict[str, str]:
        return {f"labels.{LABEL}": part.replace(" ", "-"), f"labels.{RUN_LABEL}": self.run_id, **values}

    def _undisturbed(self, part: str) -> Undisturbed:
        job = self.submit(self._values(part))
        self.say(f"{part}: {job.id}")
        told: list[Mapping[str, Any]] = []
        watcher = threading.Thread(target=_watch, args=(job, told), daemon=True)
        watcher.start()
        job = job.wait(check=False)
        watcher.join(10)
        if job.state != "COMPLETED":
            raise WeftError(f"the {part} job {job.id} is {job.state}: {job.reason}. A drill needs a job that completes")
        done = Undisturbed(job, [line for line in told if "part" in line])
        self.say(f"{part}: completed, {len(done.saves)} saves seen")
        return done

    def _disturbed(self, first: Undisturbed) -> tuple[Job, list[Disturbance]]:
        job = self.submit(self._values("disturbed", retries=str(self.kills + 1)))
        self.say(f"disturbed: {job.id}")
        disturbances: list[Disturbance] = []
        for number, strike in enumerate(plan(first, self.kills, self.seed), start=1):
            self.say(f"disturbed: {number} of {self.kills}, {strike.kind} after {strike.saves} saves")
            done = _strike(job, strike, disturbances[-1].attempt if disturbances else 0, self.grace)
            if done is None:
                break
            disturbances.append(done)
            self.say(f"disturbed: attempt {done.attempt} ended by a {strike.kind} of learner {done.learner}")
        job = job.wait(check=False)
        self.say(f"disturbed: {job.state}")
        return job, disturbances


@dataclass(frozen=True)
class Undisturbed:
    """An undisturbed job that has completed, and what was seen of its saves, part by part."""

    job: Job
    seen: Sequence[Mapping[str, Any]]

    @cached_property
    def parts(self) -> Sequence[frozenset[str]]:
        """The files of a save in the order in which they are written, with a pause between any two parts."""
        times = Counter(name for part in self.seen for name in part["files"])
        often = {name for name, count in times.items() if count > 1} or times.keys()
        found: list[frozenset[str]] = []
        for part in self.seen:
            files = often & set(part["files"])
            if files and any(files & before for before in found):
                break
            found += [frozenset(files)] if files else []
        return found

    @cached_property
    def saves(self) -> Sequence[float]:
        """When each save was complete."""
        return [
            float(part["at"]) for part in self.seen if not self.parts or not self.parts[-1].isdisjoint(part["files"])
        ]

    @cached_property
    def pause(self) -> float:
        """Seconds between the first part of a save and the next part."""
        if len(self.parts) < 2:
            return 0.0
        first, second = self.parts[:2]
        between = [
            float(after["at"]) - float(before["at"])
            for before, after in pairwise(self.seen)
            if not first.isdisjoint(before["files"]) and not second.isdisjoint(after["files"])
        ]
        return min(between, default=0.0)

    @property
    def habit(self) -> str:
        """How the program saves, if it writes a save in parts."""
        if len(self.parts) < 2:
            return ""
        before, after = (", ".join(sorted(part)[:3]) for part in self.parts[:2])
        return f"a save writes {before}, and {self.pause:.1f} s later {after}"


@dataclass(frozen=True)
class Result:
    """The jobs of a drill, and their comparison."""

    drill: Drill
    undisturbed: Job
    disturbed: Job | None
    second: Job | None
    comparison: Comparison


def plan(first: Undisturbed, kills: int, seed: int) -> list[Strike]:
    """Disturbances that are spread over the training, at moments that depend on the seed alone.

    The first is a kill between two saves: what differs after it is not due to a save that was cut off.
    """
    chance = random.Random(seed)  # noqa: S311
    times = first.saves
    every = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    apart = max(1, len(times) // (kills + 1))
    last = tuple(sorted(first.parts[-1])) if len(first.parts) > 1 else ()
    strikes = []
    for number in range(kills):
        kind = KINDS[number % len(KINDS)]
        saves = chance.randint(max(1, math.ceil(apart / 2)), apart)
        learner, moment = chance.randint(1, first.job.learners), chance.random()
        if kind == "kill in a save":
            strikes.append(Strike(kind, saves, 0.8 * first.pause, 1, last))
        else:
            # In a save of several parts, the pause before the next save is short or long: at once is between the two.
            seconds = moment * min(every, 30) if not last else 0.0
            strikes.append(Strike(kind, saves, seconds, learner if kind == "kill" else 1, last))
    return strikes


# --- in the learner --------------------------------------------------------------------------------------------------


def _running(job: Job, after: int) -> Job | None:
    """The job once an attempt after this one runs; None: it has ended."""
    while True:
        with suppress(Unavailable):
            job = job.refresh()
            if job.is_terminal:
                return None
            if job.state == "PROCESSING" and (job.attempt or 0) > after:
                return job
        time.sleep(_PAUSE)


def _lines(
    job: Job,
    learner: int,
    kind: str,
    saves: int = 0,
    seconds: float = 0.0,
    resumed: bool = False,
    last: Sequence[str] = (),
) -> Iterator[Mapping[str, Any]]:
    """What the program beside the learner's program prints, until its end or the end of the tunnel."""
    source = files("weft.drill").joinpath("inside.py").read_text(encoding="utf-8")
    command = ["python", "-c", source, kind, str(saves), f"{seconds:.3f}", "resumed" if resumed else "new", *last]
    printed, complaint = b"", b""
    with suppress(TunnelBroken), job.tunnel("exec", learner=learner, command=command) as tunnel:
        tunnel.tell(Frame.DONE)
        for frame, data in tunnel:
            if frame is Frame.OUTPUT:
                *whole, printed = (printed + data).split(b"\n")
                yield from (json.loads(line) for line in whole)
            elif frame is Frame.ERRORS:
                complaint += data
        if tunnel.end.get("exit_code") and complaint:
            raise WeftError(f"{job.id} can't be watched: {complaint.decode(errors='replace').strip()[-500:]}")


def _open(job: Job, *arguments: Any) -> Iterator[Mapping[str, Any]]:
    """As :func:`_lines`, as soon as the learner's program has started."""
    while True:
        try:
            yield from _lines(job, *arguments)
            return
        except (Conflict, Unavailable):
            job = job.refresh()
            if job.is_terminal or job.state == "STORING":
                return
            time.sleep(_PAUSE)


def _watch(job: Job, told: list[Mapping[str, Any]]) -> None:
    """Note the saves of a job's first learner."""
    with suppress(WeftError):
        running = _running(job, 0)
        if running is not None:
            for line in _open(running, 1, "watch"):
                told.append(line)


def _strike(job: Job, strike: Strike, after: int, grace: int | None) -> Disturbance | None:
    """Disturb an attempt after this one; None: the job ended before."""
    while True:
        running = _running(job, after)
        if running is None:
            return None
        attempt = running.attempt or 0
        if not _has_stored(running, attempt):
            after = attempt
            continue
        kind = strike.kind if strike.learner == 1 else "moment"
        saves: list[float] = []
        moment = 0.0
        for line in _open(running, 1, kind, strike.saves, strike.seconds, attempt > 1, strike.last):
            if line.get("save", 0) > len(saves):
                saves.append(float(line["at"]))
            moment = float(line.get("moment", moment))
        if moment and kind == "moment":
            for line in _open(running, strike.learner, "now"):
                moment = float(line.get("moment", moment))
        elif moment and kind == "halt":
            with suppress(Conflict):
                running.halt(grace)
        elif not moment and not _ended(running.refresh(), attempt):
            time.sleep(_PAUSE)
            continue  # the tunnel broke
        now = _over(running, attempt, halted=bool(moment) and kind == "halt")
        if now.state == "HALTED":
            now.resume()
        elif now.state == "COMPLETED":
            return None
        if moment:
            return Disturbance(strike.kind, attempt, strike.learner, moment, tuple(saves))
        after = attempt  # it failed by itself


def _has_stored(job: Job, attempt: int) -> bool:
    """Wait for a checkpoint that another attempt can begin with: without it, a disturbance shows nothing about the
    program. False: the attempt ended before."""
    while True:
        with suppress(Unavailable):
            if job.checkpoints():
                return True
            job = job.refresh()
            if _ended(job, attempt):
                return False
        time.sleep(_PAUSE)


def _over(job: Job, attempt: int, halted: bool = False) -> Job:
    """The job once this attempt is over. A job that is halted becomes HALTED a little after its attempt has ended."""
    while True:
        with suppress(Unavailable):
            job = job.refresh()
            if job.is_terminal or (_ended(job, attempt) and not halted):
                return job
        time.sleep(_PAUSE)


def _ended(job: Job, attempt: int) -> bool:
    return job.is_terminal or any(tried.n == attempt and tried.ended_at for tried in job.attempts)


# --- what is known of a job ------------------------------------------------------------------------------------------


def _record(job: Job) -> Recording:
    job = job.refresh()
    tries = []
    for tried in job.attempts:
        said = ""
        if tried.outcome in ("FAILED", "LOST"):
            said = "\n".join(line.text for line in job.logs(attempt=tried.n, tail=40))
        tries.append(Try(tried.n, tried.outcome, tried.reason, said, bool(tried.checkpoint)))
    points = list(job.metric_points(kind="user"))
    return Recording(
        curves_of(points),
        tuple(tries),
        job.duration or 0.0,
        job.learners,
        frozenset(checkpoint.learner for checkpoint in job.checkpoints()),
        restarting(points),
    )


def _weights(before: Job, after: Job, tolerance: float) -> list[FileResult]:
    """The files of weights in the results of two jobs, compared."""
    if after.state != "COMPLETED":
        return []
    ours = {file.path: file for file in before.files() if Path(file.path).suffix in weights.SUFFIXES}
    theirs = {file.path for file in after.files()}
    found = []
    with tempfile.TemporaryDirectory(prefix="weft-drill-") as scratch:
        for path, file in sorted(ours.items()):
            if path not in theirs:
                found.append(FileResult(path, why_not="the disturbed job has not stored it"))
            elif file.size > _MOST_BYTES:
                found.append(FileResult(path, why_not="it is larger than 4 GiB"))
            else:
                found.append(_compared(path, before, after, Path(scratch), tolerance))
    return found


def _compared(path: str, before: Job, after: Job, scratch: Path, tolerance: float) -> FileResult:
    copies = [
        job.download_file(path, scratch / f"{number}{Path(path).suffix}") for number, job in enumerate((before, after))
    ]
    try:
        return FileResult(path, weights.difference(weights.read(copies[0]), weights.read(copies[1]), tolerance))
    except weights.Unreadable as error:
        return FileResult(path, why_not=str(error))
    finally:
        for copy in copies:
            copy.unlink()


def _habits(first: Undisturbed) -> Iterator[str]:
    """How the program saves, where another way is safer."""
    if first.habit:
        yield f"{first.habit}. All of a state in one file is safe"
    if names := sorted({name for part in first.seen for name in part["in_place"]}):
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        yield (
            f"{shown}: each save writes over the file of the last. Weft restores the last whole copy; to be safe "
            "elsewhere, too, write to another name and rename (os.replace)"
        )
