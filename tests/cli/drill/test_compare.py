"""Trainings that forget a part of their state are found and named, and a training that forgets nothing passes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.programs.forgetful import train

from weft.drill.compare import Comparison, compare
from weft.drill.record import Disturbance, Kind, Of, Recording, Sample, Try, curves_of, restarting
from weft.drill.series import fits
from weft.drill.weights import FileResult, difference
from weft.resources.metrics import Point

STEPS = 60
KILLS: list[tuple[Kind, int]] = [("kill", 17), ("kill in a save", 30), ("halt", 43)]


class Killed(Exception):
    pass


class Run:
    """Attempts of the program, until a kill or the end; its clock counts calls."""

    def __init__(
        self, folder: Path, bug: str, kills: list[tuple[Kind, int]], learners: int = 1, **changes: Any
    ) -> None:
        self.curves: dict[Of, dict[int, dict[int, Sample]]] = {}
        self.disturbances: list[Disturbance] = []
        self.tries: list[Try] = []
        self.weights: dict[str, Any] = {}
        self._now = 0.0
        folder.mkdir(parents=True)
        for n, (kind, step) in enumerate([*kills, ("kill", 1000)], start=1):
            saves: list[float] = []
            for rank in range(learners):
                try:
                    self.weights |= train(
                        folder,
                        self._report(n, rank + 1),
                        bug,
                        rank=rank,
                        steps=STEPS,
                        pause=self._pause(folder, saves, step, kind, Of("train/loss", rank + 1)),
                    )
                except Killed:
                    outcome = "HALTED" if kind == "halt" else "FAILED"
                    self.disturbances[n - 1 :] = [Disturbance(kind, n, 1, self._now, tuple(saves))]
                else:
                    outcome = "SUCCEEDED"
            self.tries.append(Try(n, outcome))

    def recording(self, metrics: str = "*") -> Recording:
        curves = {of: curve for of, curve in self.curves.items() if fits(of.name, [metrics])}
        return Recording(curves, tuple(self.tries), learners=len({of.learner for of in self.curves}))

    def _report(self, n: int, learner: int) -> Callable[..., None]:
        def report(*, step: int, group: str, **values: float) -> None:
            self._now += 1
            for name, value in values.items():
                curve = self.curves.setdefault(Of(f"{group}/{name}", learner), {})
                curve.setdefault(n, {})[step] = Sample(value, self._now)

        return report

    def _pause(self, folder: Path, saves: list[float], last: int, kind: Kind, of: Of) -> Callable[[str], None]:
        seen = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

        def pause(where: str) -> None:
            curve = self.curves[of]
            step = max(curve[max(curve)])
            self._now += 1
            now = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
            if now != seen:
                seen.update(now)
                saves.append(self._now)
            if step >= last and (where == "in a save" or kind != "kill in a save" or not torn(folder)):
                raise Killed

        return pause


def torn(folder: Path) -> bool:
    return (folder / "weights-0.npz").exists()


def drill(folder: Path, bug: str, learners: int = 1, metrics: str = "*") -> Comparison:
    undisturbed = Run(folder / "undisturbed", "", [], learners)
    disturbed = Run(folder / "disturbed", bug, KILLS, learners)
    apart = difference(undisturbed.weights, disturbed.weights, 1e-5)
    return compare(
        undisturbed.recording(metrics),
        disturbed.recording(metrics),
        disturbed.disturbances,
        weights=[FileResult("model.npz", apart)],
    )


@pytest.mark.parametrize("learners", [1, 2])
def test_a_program_that_saves_everything_survives(tmp_path: Path, learners: int) -> None:
    found = drill(tmp_path, "", learners)
    assert (found.verdict, found.causes, found.notes) == ("survives", (), ())
    assert (found.steps, found.trained) == (60, 60 + 2 + 0 + 3)
    assert [(loss.resumed_at, loss.repeated) for loss in found.losses] == [(16, 2), (31, 0), (41, 3)]
    assert len(found.partings) == 3 * learners


@pytest.mark.parametrize(
    ("bug", "evidence"),
    [
        ("random numbers", "train/loss differs from step 16 on, in attempt 2"),
        ("torn save", "after the kill in a save, and not after the kill"),
        ("data repeated", "step 16 has the data of step 9"),
        ("optimizer", "train/loss differs from step 17 on"),
        ("counter", "step 15 has the data of step 16"),
        ("scheduler", "train/rate differs from step 16 on"),
        ("not resumed", "attempt 2 begins at step 1, after a kill"),
    ],
)
def test_a_program_that_forgets_something_is_named(tmp_path: Path, bug: str, evidence: str) -> None:
    found = drill(tmp_path, bug)
    assert found.verdict == "differs"
    assert found.causes[0].key == bug, found.causes
    assert evidence in found.causes[0].evidence
    assert found.causes[0].lines("python")


@pytest.mark.parametrize(
    ("bug", "evidence"),
    [
        ("random numbers", "its first point in this attempt"),
        ("optimizer", "the point of this attempt before it is the same"),
        ("counter", "step 15 was reported before the save, and is trained once more"),
    ],
)
def test_a_loss_alone_tells_much(tmp_path: Path, bug: str, evidence: str) -> None:
    found = drill(tmp_path, bug, metrics="train/loss")
    assert found.causes[0].key == bug, found.causes
    assert evidence in found.causes[0].evidence


def test_learners_that_do_not_load_are_named(tmp_path: Path) -> None:
    found = drill(tmp_path, "rank 0 only", learners=2)
    assert found.causes[0].key == "rank 0 only"
    assert found.causes[0].evidence == "in attempt 2 learner 1 continues at step 16, learner 2 at step 1"


def recording(*attempts: dict[int, float], name: str = "loss", **changes: Any) -> Recording:
    curve = {
        n: {step: Sample(value, step) for step, value in steps.items()} for n, steps in enumerate(attempts, start=1)
    }
    return Recording({Of(name, 1): curve}, **changes)


def steps(first: int, last: int, noise: float = 0.0) -> dict[int, float]:
    return {step: 1 / step + noise * step % 0.01 for step in range(first, last + 1)}


KILL = Disturbance("kill", 1, at=12.0, saves=(8.0,))


def test_noise_of_undisturbed_trainings_is_no_difference() -> None:
    first, second = recording(steps(1, 20)), recording(steps(1, 20, noise=0.003))
    disturbed = recording(steps(1, 12, noise=0.002), steps(9, 20, noise=0.001))
    assert compare(first, disturbed, [KILL]).verdict == "differs"
    found = compare(first, disturbed, [KILL], second=second)
    assert (found.verdict, found.deterministic) == ("survives", False)
    wrong = recording(steps(1, 12), {step: value + 0.1 for step, value in steps(9, 20).items()})
    assert compare(first, wrong, [KILL], second=second).verdict == "differs"


def test_points_without_a_step_are_not_compared() -> None:
    found = compare(recording(steps(1, 20)), recording(steps(1, 12), steps(1, 12)), [KILL])
    assert (found.verdict, found.partings) == ("unproven", ())
    assert found.notes == ("loss has no step, so no curve was compared: pass step= to log_metrics",)


def test_a_step_that_a_kill_left_unreported_is_no_difference() -> None:
    found = compare(recording(steps(1, 20)), recording(steps(1, 12), steps(14, 20)), [KILL])
    assert (found.verdict, len(found.notes)) == ("survives", 1)
    skipped = recording(steps(1, 12), {step: value + 1 for step, value in steps(14, 20).items()})
    assert compare(recording(steps(1, 20)), skipped, [KILL]).causes[0].evidence == "attempt 2 leaves out step 13"
    longer = compare(recording(steps(1, 20)), recording(steps(1, 12), steps(9, 21)), [KILL])
    assert [cause.key for cause in longer.causes] == ["counter"]


def test_an_attempt_that_fails_by_itself_names_its_checkpoint() -> None:
    tries = (Try(1, "FAILED"), Try(2, "FAILED", "learner 1: exit code 1", "zipfile.BadZipFile: File is not a zip file"))
    disturbed = recording(steps(1, 12), tries=tries)
    assert [cause.key for cause in compare(recording(steps(1, 20)), disturbed, [KILL]).causes] == ["torn save"]
    other = recording(steps(1, 12), tries=(tries[0], Try(2, "FAILED", "learner 1: exit code 1", "KeyError: 'epoch'")))
    assert [cause.key for cause in compare(recording(steps(1, 20)), other, [KILL]).causes] == ["failed"]


def test_an_attempt_without_a_checkpoint_proves_nothing() -> None:
    tries = (Try(1, "FAILED", restored=False), Try(2, "SUCCEEDED", restored=False))
    found = compare(recording(steps(1, 20)), recording(steps(1, 12), steps(1, 20), tries=tries), [KILL])
    assert (found.verdict, found.causes) == ("unproven", ())
    assert found.notes == ("attempt 2 began without a checkpoint, as none was complete before the kill",)


def test_speed_is_not_compared() -> None:
    for name in ("images_per_second", "perf/step_time", "train/tokens_per_s"):
        found = compare(recording(steps(1, 20), name=name), recording(steps(1, 12), steps(9, 20, 1), name=name), [KILL])
        assert found.partings == (), name


def point(step: int, value: float, at: int, name: str = "loss", attempt: int = 1) -> Point:
    return Point(name, "", "user", 1, attempt, step, datetime.fromtimestamp(at, UTC), value)


def test_steps_that_begin_again_within_an_attempt_are_not_compared() -> None:
    """A step that an attempt repeats at once, or that another attempt repeats, does not begin again."""
    phases = [point(2, 0.7, 1, "both"), point(4, 0.6, 2, "both"), point(2, 0.5, 3, "both")]
    again = [point(1, 0.5, 1), point(2, 0.4, 2), point(2, 0.3, 3), point(2, 0.4, 4, attempt=2)]
    assert restarting([*phases, *again]) == {"both"}
    wanted = Recording(curves_of([*phases, *again[:3]]), restarting=frozenset({"both"}))
    found = compare(wanted, Recording(curves_of([*phases[:2], *again])), [])
    assert [parting.name for parting in found.partings] == ["loss"]
    assert "these metrics were not compared: both" in found.notes[0]
