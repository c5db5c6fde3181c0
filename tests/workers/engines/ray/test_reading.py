"""Ray's answers about a lone learner whose job's own actor has ended. No cluster: some of it can't be made to
happen."""

from __future__ import annotations

from typing import Any

import pytest

from weft_workers.engines.ray.reading import Run, observe

_DIED = "Job supervisor actor died: The actor died"


def run(message: str, error_type: str = "JOB_SUPERVISOR_ACTOR_DIED", learners: int = 1) -> Run:
    status = '{"learners":[{"state":"RUNNING","reason":"","node":"node-2","node_id":"d4"}]}'
    metadata = {"learners": str(learners), "weft_status": status}
    job: dict[str, Any] = {"submission_id": "weft-a-1", "status": "FAILED", "error_type": error_type}
    return Run({**job, "message": message, "metadata": metadata})


@pytest.mark.parametrize(
    ("message", "error_type", "reason", "oom"),
    [
        (
            "Unexpected error occurred: Task was killed due to the node running low on memory.",
            "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
            "killed by Ray's memory monitor: its node was running out of memory",
            True,
        ),
        (
            f"{_DIED} because its node has died. Node Id: d4\n\tthe actor's node was terminated unexpectedly: health "
            "check failed due to missing too many heartbeats",
            "JOB_SUPERVISOR_ACTOR_DIED",
            "its node node-2 was lost",
            False,
        ),
        (
            "Job supervisor actor failed to start within 900.0 seconds.",
            "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
            "Ray has found no room for it: Job supervisor actor failed to start within 900.0 seconds.",
            False,
        ),
        (
            f"{_DIED} unexpectedly before finishing this task.",
            "JOB_SUPERVISOR_ACTOR_DIED",
            f"its driver on the Ray cluster was lost: {_DIED} unexpectedly before finishing this task.",
            False,
        ),
    ],
)
def test_why_a_lone_learner_has_ended(message: str, error_type: str, reason: str, oom: bool) -> None:
    learner = observe(run(message, error_type)).learners[0]
    assert (learner.reason, learner.oom, learner.interrupted, learner.exit_code) == (reason, oom, not oom, -9)
