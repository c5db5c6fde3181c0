"""Whether a disturbed training is the undisturbed one, by steps, order of data, curves and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.drill.causes import Cause
from weft.drill.diagnose import Diagnosis
from weft.drill.record import Disturbance, Recording
from weft.drill.series import Parting, Series, leading, pair
from weft.drill.weights import FileResult

TOLERANCE = 1e-5
DATA = ("data/*",)


@dataclass(frozen=True)
class Loss:
    """What a disturbance cost.

    Attributes:
        resumed_at: the first step of the next attempt.
        repeated: the steps that the next attempt trained again.
        seconds: until the first step that no attempt before had reported.
    """

    disturbance: Disturbance
    resumed_at: int | None = None
    repeated: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The result of a drill.

    Attributes:
        steps: how many steps the undisturbed training has reported.
        trained: how many the disturbed training has reported, with repetitions.
        causes: the likeliest first; empty: the training survives.
        notes: what else a user should know.
        deterministic: whether two undisturbed trainings are equal; None: there was only one.
        noise: the largest relative difference of the two.
        resumed: how many attempts have begun with a checkpoint after a disturbance.
    """

    steps: int
    trained: int
    losses: tuple[Loss, ...]
    partings: tuple[Parting, ...]
    weights: tuple[FileResult, ...]
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    deterministic: bool | None = None
    noise: float = 0.0
    resumed: int = 0

    @property
    def verdict(self) -> str:
        """``survives``, ``differs``, or ``unproven``: no attempt was resumed, or nothing can be compared."""
        if self.causes:
            return "differs"
        compared = self.partings or any(file.difference for file in self.weights)
        return "survives" if compared and self.resumed else "unproven"


def compare(
    undisturbed: Recording,
    disturbed: Recording,
    disturbances: Sequence[Disturbance],
    *,
    weights: Sequence[FileResult] = (),
    second: Recording | None = None,
    weights_noise: float = 0.0,
    metrics: Sequence[str] = (),
    data: Sequence[str] = DATA,
    tolerance: float = TOLERANCE,
    habit: str = "",
) -> Comparison:
    """Compare a disturbed training with an undisturbed one.

    Args:
        weights: the files of the results.
        second: another undisturbed training, which shows how far two trainings part by themselves.
        weights_noise: the largest relative difference of the weights of the two undisturbed trainings.
        metrics: the names of the metrics to compare (``*`` matches any text); empty: all but those of time and speed.
        data: the names of the metrics that say which data a step uses.
        tolerance: the relative difference up to which two values of a metric are the same.
        habit: how the program saves, if it writes a save in parts.
    """
    pairs = pair(undisturbed, disturbed, second, metrics, tolerance)
    leads = leading(pairs, data)
    notes = []
    if uncounted := [series.of.name for series in leads.values() if _counts_anew(series, disturbances)]:
        notes.append(f"{uncounted[0]} has no step, so no curve was compared: pass step= to log_metrics")
        pairs, leads = {}, {}
    partings = [series.parting() for series in pairs.values()]
    files = [file.beyond(weights_noise) for file in weights]
    diagnosis = Diagnosis(pairs, leads, partings, files, disturbed, disturbances, data, habit)
    causes = diagnosis.causes()
    if ambiguous := sorted(undisturbed.restarting | disturbed.restarting):
        notes.append(f"steps begin again within an attempt, so these metrics were not compared: {', '.join(ambiguous)}")
    notes += diagnosis.not_restored()
    if not causes:
        notes += diagnosis.unreported()
    lead = next(iter(leads.values()), None)
    noise = max([weights_noise, *(series.relative_noise for series in pairs.values())])
    return Comparison(
        steps=len(lead.wanted) if lead else 0,
        trained=sum(map(len, lead.found.values())) if lead else 0,
        losses=tuple(_loss(disturbance, lead) for disturbance in disturbances),
        partings=tuple(partings),
        weights=tuple(files),
        causes=tuple(causes),
        notes=tuple(notes),
        deterministic=None if second is None else noise <= tolerance,
        noise=noise,
        resumed=len(disturbances) - len(diagnosis.not_restored()),
    )


def _counts_anew(lead: Series, disturbances: Sequence[Disturbance]) -> bool:
    """Whether the points have no step: each attempt then counts from the start, and the last one ends early."""
    last = max(lead.found, default=1)
    if last == 1 or any(disturbance.attempt == last for disturbance in disturbances):
        return False
    return lead.begin(last) == lead.order[0] and max(lead.found[last]) < lead.order[-1]


def _loss(disturbance: Disturbance, lead: Series | None) -> Loss:
    after = lead.found.get(disturbance.attempt + 1) if lead else None
    if lead is None or not after:
        return Loss(disturbance)
    known = lead.steps_before(disturbance.attempt + 1)
    new = [sample.time for step, sample in after.items() if step not in known]
    seconds = min(new) - disturbance.at if new and disturbance.at else None
    return Loss(disturbance, min(after), len(known & after.keys()), seconds)
