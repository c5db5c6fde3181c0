"""The state of a run, in memory; the workers keep the same of a job in the database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from weft_core.engine import Observation
from weft_core.lifecycle.actions import Conclusion, Settle
from weft_core.lifecycle.notes import Notes
from weft_core.lifecycle.states import Desired, JobState, check_transition
from weft_core.lifecycle.view import AttemptView, ExitReport, JobView, LearnerView, Sighting, View
from weft_core.manifest import Manifest
from weft_core.settings import TimingSettings
from weft_embedded.run.learners import Gang, Learner


class Clock:
    """The time of day, by a clock that is never set while the run lasts."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC) - timedelta(seconds=time.monotonic())

    def __call__(self) -> datetime:
        return self._began + timedelta(seconds=time.monotonic())


class Memory:
    """A run's job, its newest attempt, and the engine's last answer."""

    def __init__(self, run_id: str, manifest: Manifest, timings: TimingSettings, clock: Clock) -> None:
        self.state = JobState.QUEUED
        self.reason = ""
        self.condition: str | None = None
        self.attempt: AttemptView | None = None
        self.gang: Gang | None = None
        self._clock = clock
        self._timings = timings
        self._job = JobView(
            id=run_id,
            project_id="local",
            engine="local",
            state=self.state,
            desired=Desired.RUNNING,
            learners=manifest.learners,
            retries=manifest.retries,
            max_runtime=manifest.max_runtime_seconds,
            name=manifest.name,
            manifest=manifest.model_dump(mode="json", exclude_none=True),
        )
        self._state_since = clock()
        self._desired = Desired.RUNNING
        self._failures = 0
        self._answered = False
        self._observation: Observation | None = None
        self._unreachable: str | None = None
        self._absences: dict[int, int] = {}
        self._exits: dict[int, ExitReport | None] = {}
        self._progress = ""
        self._progress_at: datetime | None = None

    def view(self) -> View:
        """All of it at this moment."""
        now = self._clock()
        attempt = self.attempt
        open_gang = self.gang if attempt is not None and attempt.ended_at is None else None
        return View(
            now,
            self._timings,
            replace(
                self._job,
                state=self.state,
                desired=self._desired,
                failures=self._failures,
                reason=self.reason,
                condition=self.condition,
                state_since=self._state_since,
            ),
            attempt,
            tuple(self._learner(learner) for learner in open_gang.snapshot()) if open_gang else (),
            Sighting(self._observation, now) if self._answered and not self._unreachable else None,
            self._unreachable,
            self._exits,
            self._progress,
            self._progress_at,
        )

    def _learner(self, learner: Learner) -> LearnerView:
        assert self.attempt is not None
        return LearnerView(
            rank=learner.rank,
            phase=learner.phase,
            started_at=learner.started_at,
            heartbeat_at=learner.heartbeat_at,
            idle_since=learner.idle_since,
            wrote=learner.wrote,
            stacks_at=learner.stacks_at,
            absences=self._absences.get(learner.rank, 0),
            exit_code=learner.exit_code,
            exit_reason=learner.reason or None,
            exited_at=learner.exited_at,
            launched_at=self.attempt.launched_at,
        )

    # --- the job ---

    def enter(self, state: JobState, reason: str) -> None:
        """Move the job along the table of transitions. Raises IllegalTransition."""
        check_transition(self.state, state)
        self.state, self.reason, self._state_since = state, reason, self._clock()

    def halt(self, grace: float) -> None:
        """The user has asked for the run's end; a later request may only shorten the grace."""
        self._desired = Desired.HALTED
        attempt = self.attempt
        if attempt is not None and attempt.ended_at is None:
            self.attempt = replace(attempt, grace=grace if attempt.grace is None else min(grace, attempt.grace))

    # --- the attempt ---

    def begin(self, attempt: AttemptView, gang: Gang) -> None:
        """An attempt is open; the engine has not heard of it."""
        self.attempt, self.gang = attempt, gang
        self._answered, self._observation, self._unreachable = False, None, None
        self._absences, self._exits = {}, {}
        self._progress, self._progress_at = "", None

    def launched(self) -> None:
        self._change(launched_at=self._clock())

    def answered(self, observation: Observation | None) -> None:
        """The engine's answer about the run, which holds until the next one. None: the run is gone."""
        self._answered, self._observation, self._unreachable = True, observation, None

    def silent(self, why: str) -> None:
        """The engine can't be observed."""
        self._unreachable = why

    def found(self, exits: Mapping[int, ExitReport | None]) -> None:
        self._exits.update(exits)

    def note(self, notes: Notes) -> None:
        self.condition = notes.condition
        self.reason = notes.reason or self.reason
        self._absences.update(notes.absences)
        if notes.progress:
            self._progress, self._progress_at = notes.progress, self._clock()

    def settle(self, settle: Settle) -> None:
        """The attempt's outcome is decided."""
        self._change(
            outcome=settle.outcome,
            reason=settle.reason,
            error_code=settle.error_code,
            exit_code=settle.exit_code,
            grace=settle.grace,
            stop_requested_at=self._clock(),
        )

    def warned(self, *, stalled_since: datetime | None = None, no_output: bool = False) -> None:
        """Note that the user got this warning."""
        if no_output:
            self._change(no_output_at=self._clock())
        else:
            at = self._clock() if stalled_since else None
            self._change(stalled_at=at, stalled_since=stalled_since, verdict=None)

    def judged(self, verdict: str) -> None:
        """Note the verdict on the stall."""
        self._change(verdict=verdict)

    def end(self, conclusion: Conclusion) -> None:
        """Nothing is left of the attempt."""
        self._change(ended_at=self._clock())
        self._failures = conclusion.failures
        self.condition = None
        self.enter(conclusion.state, conclusion.reason)

    def _change(self, **fields: object) -> None:
        assert self.attempt is not None
        self.attempt = replace(self.attempt, **fields)  # type: ignore[arg-type]
