"""Why a disturbed training is another one.

The step at which the two part, counted from the first step after a resume, shows what was not restored. With the same
weights and the same data, the first loss must be the same. If it is and the second is not, the update was another one:
the optimizer's state is missing. If the first differs, then the data, the random numbers or the weights are others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.drill.causes import Cause, Key
from weft.drill.record import Disturbance, Of, Recording
from weft.drill.series import Parting, Series, fits
from weft.drill.weights import FileResult

_SCHEDULES: tuple[tuple[re.Pattern[str], Key], ...] = (
    (re.compile(r"(^|[/_.-])((loss|grad)_?scale|scaler?)($|[/_.-])", re.IGNORECASE), "scaler"),
    (re.compile(r"(^|[/_.-])(lr([_-]?\d+)?|(learning_?)?rate|schedule)($|[/_.-])", re.IGNORECASE), "scheduler"),
)
_UNREADABLE = re.compile(
    r"EOFError|UnpicklingError|BadZipFile|JSONDecodeError|PytorchStreamReader|SafetensorError|HeaderIncomplete|truncated"
    r"|not a zip file|Unable to (synchronously )?open file|DataLossError|central directory|torn|corrupt",
    re.IGNORECASE,
)
_TICK = 0.01
"""Seconds by which the time of a file may be behind the clock."""


@dataclass(frozen=True)
class Diagnosis:
    """
    Args:
        pairs: all metrics.
        leads: the metric that shows the steps, by learner.
        data: the names of metrics that say which data a step uses.
        habit: how the program saves, if it writes a save in parts.
    """

    pairs: Mapping[Of, Series]
    leads: Mapping[int, Series]
    partings: Sequence[Parting]
    weights: Sequence[FileResult]
    disturbed: Recording
    disturbances: Sequence[Disturbance]
    data: Sequence[str]
    habit: str = ""

    @cached_property
    def _before(self) -> dict[int, Disturbance]:
        """What ended the attempt before an attempt."""
        return {disturbance.attempt + 1: disturbance for disturbance in self.disturbances}

    @cached_property
    def _without(self) -> set[int]:
        """The attempts after a disturbance for which there was no checkpoint yet."""
        return {attempt.n for attempt in self.disturbed.tries if attempt.n in self._before and not attempt.restored}

    @cached_property
    def _lead(self) -> Series | None:
        return next(iter(self.leads.values()), None)

    def causes(self) -> list[Cause]:
        """Empty: the training is the same."""
        whole = self._failed() or self._restarted()
        if whole:
            return [whole]
        parted = [parting for parting in self.partings if parting.step is not None]
        if not parted:
            end = self._wrong_end()
            return [end] if end else self._only_weights()
        n = min(parting.attempt for parting in parted)
        here = [parting for parting in parted if parting.attempt == n]
        if gang := self._only_some(n, here):
            return [gang]
        if gap := self._gap(n):
            return [Cause("counter", f"attempt {n} leaves out step {_span(gap)}")]
        if data := [parting for parting in here if fits(parting.name, self.data)]:
            return [self._by_data(n, min(data, key=lambda parting: parting.position))]
        by_kind = self._by_kind(n, here[0])
        return [*by_kind, *self._by_position(n, here)]

    def unreported(self) -> list[str]:
        """Steps without a point in a training that is the same otherwise."""
        gaps = [gap for n in sorted(self._before) if (gap := self._gap(n))]
        return [f"no point of step {_span(gap)}: the kill came between its save and its report" for gap in gaps]

    def not_restored(self) -> list[str]:
        """Attempts that show nothing, because there was no checkpoint yet."""
        return [
            f"attempt {n} began without a checkpoint, as none was complete before the kill"
            for n in sorted(self._without)
        ]

    # --- whole attempts ---

    def _failed(self) -> Cause | None:
        ended = {disturbance.attempt for disturbance in self.disturbances}
        for attempt in self.disturbed.tries:
            what = self._before.get(attempt.n)
            if attempt.outcome not in ("FAILED", "LOST") or attempt.n in ended or what is None:
                continue
            told = f"attempt {attempt.n}, after a {what.kind}, ended with: {attempt.reason or attempt.outcome}"
            unreadable = _UNREADABLE.search(attempt.said) or _UNREADABLE.search(attempt.reason)
            if unreadable or what.kind == "kill in a save":
                return Cause("torn save", told + (f" ({unreadable[0]})" if unreadable else ""))
            return Cause("failed", told)
        return None

    def _restarted(self) -> Cause | None:
        """Learners that begin again at their first step."""
        for n, what in sorted(self._before.items()):
            if n in self._without:
                continue  # it had nothing to continue from
            begins = self._begins(n)
            again = [learner for learner, step in begins.items() if step == self.leads[learner].order[0]]
            # The save in which the program was killed may be lost.
            if not again or len(what.saves) <= (what.kind == "kill in a save"):
                continue
            if going := [learner for learner in begins if learner not in again]:
                return self._apart(n, begins, going[0], again[0])
            if len(self.leads[again[0]].order) > 1:
                return Cause("not resumed", f"attempt {n} begins at step {begins[again[0]]}, after a {what.kind}")
        return None

    def _apart(self, n: int, begins: Mapping[int, int], learner: int, other: int) -> Cause:
        told = f"in attempt {n} learner {learner} continues at step {begins[learner]}"
        return Cause("rank 0 only", f"{told}, learner {other} at step {begins[other]}")

    def _begins(self, n: int) -> dict[int, int]:
        """The first step of an attempt by learner."""
        found = {learner: series.begin(n) for learner, series in self.leads.items()}
        return {learner: step for learner, step in found.items() if step is not None}

    def _gap(self, n: int) -> list[int]:
        """Steps that neither an attempt nor those before have reported, though it has later ones."""
        for series in self.leads.values():
            begin, before = series.begin(n), series.steps_before(n)
            gap = [step for step in series.order if max(before, default=step) < step < (begin or 0)]
            if gap:
                return gap
        return []

    def _wrong_end(self) -> Cause | None:
        for series in self.leads.values():
            last = max((step for steps in series.found.values() for step in steps), default=series.order[-1])
            if last != series.order[-1]:
                told = f"{series.of.name} ends at step {last}, undisturbed at step {series.order[-1]}"
                return Cause("counter", told)
        return None

    def _only_weights(self) -> list[Cause]:
        differing = [file for file in self.weights if file.difference and file.difference.differing]
        if not differing:
            return []
        names = differing[0].difference.differing if differing[0].difference else ()
        shown = ", ".join(name or "the array" for name in names[:3]) + (", …" if len(names) > 3 else "")
        told = f"{differing[0].file} differs ({shown})"
        if not self.partings:
            return [Cause("unknown", f"{told}, and there is no metric to compare: report a loss of each step")]
        return [Cause("weights", f"{told}, although all metrics are the same", sure=False)]

    # --- by the first difference ---

    def _only_some(self, n: int, here: Sequence[Parting]) -> Cause | None:
        """Whether the first learner continues as it did, and others do not."""
        begins = self._begins(n)
        lead = min(self.leads)
        for learner, step in begins.items():
            if learner != lead and step != begins.get(lead, step):
                told = (
                    f"in attempt {n} learner {lead} continues at step {begins[lead]}, learner {learner} at step {step}"
                )
                return Cause("rank 0 only", told)
        # What the others compute wrong reaches the first learner with the sum of the gradients, a step later.
        early = min(parting.position for parting in here)
        first = [parting for parting in here if parting.position == early]
        if len(self.leads) > 1 and all(parting.learner != lead for parting in first):
            return Cause("rank 0 only", f"{first[0]}; learner {lead} continues as it should")
        return None

    def _by_data(self, n: int, parting: Parting) -> Cause:
        series = self.pairs[parting.of]
        shift = series.shift(n) if parting.position == 0 else None
        if shift is None or parting.step is None:
            return Cause("random numbers", f"{parting}: the order of the data is another one")
        other = series.order[series.place[parting.step] + shift]
        told = f"{parting}: step {parting.step} has the data of step {other}"
        return Cause("counter" if abs(shift) == 1 else "data repeated", told)

    def _by_kind(self, n: int, parting: Parting) -> list[Cause]:
        """A cause that only one kind of disturbance shows: the resumes before, of other kinds, were right."""
        what, lead = self._before.get(n), self._lead
        if what is None or lead is None:
            return []
        if self.habit and parting.position == 0:
            return [Cause("torn save", f"{parting}, and {self.habit}", sure=False)]
        clean = [other.kind for m, other in self._before.items() if m < n and len(lead.common(m)) > 1]
        if not clean or what.kind in clean:
            return []
        if what.kind == "kill in a save":
            return [
                Cause("torn save", f"{parting}: after the kill in a save, and not after the {clean[0]}", sure=False)
            ]
        if what.kind == "halt":
            return [Cause("save at SIGTERM", f"{parting}: after the halt, and not after the {clean[0]}", sure=False)]
        return []

    def _by_position(self, n: int, here: Sequence[Parting]) -> list[Cause]:
        early = min(parting.position for parting in here)
        first = [parting for parting in here if parting.position == early]
        for pattern, key in _SCHEDULES:
            if named := [parting for parting in first if pattern.search(parting.name)]:
                return [Cause(key, str(named[0]))]
        told = str(first[0])
        if early:
            told += f": {_points(early)} of this attempt before it {'is' if early == 1 else 'are'} the same"
            return [Cause("optimizer", told, sure=early == 1), Cause("scheduler", told, sure=False)]
        shifts = [self.pairs[parting.of].shift(n) for parting in first]
        if any(shift in (1, -1) for shift in shifts):
            return [Cause("counter", f"{told}: its values are those of the step beside it")]
        if twice := self._trained_twice(n):
            return [Cause("counter", f"{told}: {twice}", sure=False), Cause("random numbers", told, sure=False)]
        if self._as_new(first[0]):
            return [Cause("weights", f"{told}: this is nearer to the first value of the training", sure=False)]
        told += ", its first point in this attempt"
        if any(fits(of.name, self.data) for of in self.pairs):
            causes = [Cause("random numbers", f"{told}, with the same data", sure=False)]
        else:
            causes = [
                Cause("random numbers", told, sure=False),
                Cause("data repeated", "no metric says which data a step uses", sure=False),
            ]
        causes.append(Cause("optimizer", "if a point is the mean of several steps", sure=False))
        if self.disturbed.learners > 1 and len(self.disturbed.savers) == 1:
            causes.append(Cause("rank 0 only", "one learner saves, and each has a state of its own", sure=False))
        return causes

    def _trained_twice(self, n: int) -> str:
        """Whether an attempt begins with a step that was reported before the save from which it continues."""
        what, lead = self._before.get(n), self._lead
        if what is None or lead is None or (begin := lead.begin(n)) is None:
            return ""
        reported = lead.found.get(what.attempt, {})
        saved = {
            max(
                (lead.place.get(step, -1) for step, sample in reported.items() if sample.time <= save + _TICK),
                default=-1,
            )
            for save in what.saves
        }
        place = lead.place.get(begin, -1)
        if place >= 0 and place in saved and place - 1 not in saved:
            return f"step {begin} was reported before the save, and is trained once more"
        return ""

    def _as_new(self, parting: Parting) -> bool:
        series = self.pairs[parting.of]
        new = series.wanted[series.order[0]].value
        return parting.step != series.order[0] and abs(parting.found - parting.wanted) > abs(parting.found - new)


def _span(steps: Sequence[int]) -> str:
    return f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _points(count: int) -> str:
    return "the point" if count == 1 else f"the {count} points"
