"""``python -m weft_trainer.ray_gang.cancel SUBMISSION_ID``: a Ray job that cancels another job that waits for room.

Ray stops a job only once the job runs. Until then it keeps searching for room, and keeps asking the autoscaler for it.
"""

from __future__ import annotations

import os
import sys

import ray
from ray.dashboard.modules.job.common import (
    JOB_ACTOR_NAME_TEMPLATE,
    SUPERVISOR_ACTOR_RAY_NAMESPACE,
)


def main(submission_id: str) -> None:
    ray.init(log_to_driver=False, logging_level="warning")
    try:
        supervisor = ray.get_actor(
            JOB_ACTOR_NAME_TEMPLATE.format(job_id=submission_id), namespace=SUPERVISOR_ACTOR_RAY_NAMESPACE
        )
    except ValueError:
        print(f"{submission_id} has ended by itself")
    else:
        ray.kill(supervisor)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
