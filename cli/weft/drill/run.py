"""The jobs of a drill: one undisturbed, one killed and halted, and a second undisturbed one if the two differ."""

from __future__ import annotations

import json
import math
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.drill import weights
from weft.drill.causes import Cause
from weft.drill.compare import DATA, TOLERANCE, Comparison, compare
from weft.drill.record import KINDS, Disturbance, Kind, Recording, Try, curves_of
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
    """A disturbance that is to come: ``seconds`` after so many saves of the attempt; ``in a save``: at the next."""

    kind: Kind
    saves: int
    seconds: float
    learner: int = 1


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
        if not first.saves and not first.job.checkpoints():
            told = f"{first.job.id} has written no file into CHECKPOINT_DIR"
            nothing = Comparison(0, 0, (), (), (), (Cause("no checkpoint", told),))
            return Result(self, first.job, None, None, nothing)
        disturbed, disturbances = self._disturbed(first)
        self.say("comparing")
        before, after = _record(first.job), _record(disturbed)
        found = self._compare(before, after, disturbances, _weights(first.job, disturbed, self.tolerance))
        second: Job | None = None
        if found.causes and any(parting.step is not None for parting in found.partings):
            self.say("the trainings differ: a second undisturbed one shows whether two undisturbed ones do")
            second = self._undisturbed("undisturbed again").job
            noise = max(
                (file.difference.largest for file in _weights(first.job, second, self.tolerance) if file.difference),
                default=0.0,
            )
            files = found.weights
            found = self._compare(before, after, disturbances, files, _record(second), noise)
        notes = [*found.notes, *self._missed(disturbances), *_in_place(first)]
        return Result(self, first.job, disturbed, second, replace(found, notes=tuple(notes)))

    def _compare(
        self,
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
        saves = [line for line in told if "save" in line]
        self.say(f"{part}: completed, {len(saves)} saves seen")
        return Undisturbed(job, saves)

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
    """An undisturbed job that has completed, and what was seen of its saves."""

    job: Job
    saves: Sequence[Mapping[str, Any]]


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
    times = [float(save["at"]) for save in first.saves]
    every = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    apart = max(1, len(times) // (kills + 1))
    strikes = []
    for number in range(kills):
        saves = chance.randint(max(1, math.ceil(apart / 2)), apart)
        learner = chance.randint(1, first.job.learners)
        kind = KINDS[number % len(KINDS)]
        strikes.append(Strike(kind, saves, chance.random() * min(every, 30), learner if kind == "kill" else 1))
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


def _lines(job: Job, learner: int, kind: str, saves: int, seconds: float, resumed: bool) -> Iterator[Mapping[str, Any]]:
    """What the program beside the learner's program prints, until its end or the end of the tunnel."""
    source = files("weft.drill").joinpath("inside.py").read_text(encoding="utf-8")
    command = ["python", "-c", source, kind, str(saves), f"{seconds:.3f}", "resumed" if resumed else "new"]
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
            for line in _open(running, 1, "watch", 0, 0.0, False):
                told.append(line)


def _strike(job: Job, strike: Strike, after: int, grace: int | None) -> Disturbance | None:
    """Disturb an attempt after this one; None: the job ended before."""
    while True:
        running = _running(job, after)
        if running is None:
            return None
        attempt = running.attempt or 0
        kind = strike.kind if strike.learner == 1 else "moment"
        saves: list[float] = []
        moment = 0.0
        for line in _open(running, 1, kind, strike.saves, strike.seconds, attempt > 1):
            if "save" in line:
                saves.append(float(line["at"]))
            moment = float(line.get("moment", moment))
        if moment and kind == "moment":
            for line in _open(running, strike.learner, "now", 0, 0.0, True):
                moment = float(line.get("moment", moment))
        elif moment and kind == "halt":
            with suppress(Conflict):
                running.halt(grace)
        elif not moment and not _ended(running.refresh(), attempt):
            time.sleep(_PAUSE)
            continue  # the tunnel broke
        now = _over(running, attempt)
        if now.state == "HALTED":
            now.resume()
        elif now.state == "COMPLETED":
            return None
        if moment:
            return Disturbance(strike.kind, attempt, strike.learner, moment, tuple(saves))
        after = attempt  # it failed by itself


def _over(job: Job, attempt: int) -> Job:
    """The job once this attempt is over."""
    while True:
        with suppress(Unavailable):
            job = job.refresh()
            if _ended(job, attempt):
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
        tries.append(Try(tried.n, tried.outcome, tried.reason, said))
    return Recording(
        curves_of(job.metric_points(kind="user")),
        tuple(tries),
        job.duration or 0.0,
        job.learners,
        frozenset(checkpoint.learner for checkpoint in job.checkpoints()),
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


def _in_place(first: Undisturbed) -> Iterator[str]:
    names = sorted({name for save in first.saves for name in save["in_place"]})
    if names:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        yield (
            f"{shown}: each save writes over the file of the last. Weft restores the last whole copy; to be safe "
            "elsewhere, too, write to another name and rename (os.replace)"
        )
