"""The report of a learner's end, after the rest of its log and metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from weft_trainer.errors import Fenced, TrainerError, warn
from weft_trainer.http import Http, Unreachable
from weft_trainer.phases.learner import Learner
from weft_trainer.program.endings import Ending
from weft_trainer.service.client import ApiClient

_KEY = "exit.json"
_FILE_SECONDS = 15.0
_LONGEST_REASON = 2000
_SECONDS = 3600.0
"""How long log and exit report wait for an API that is away."""
_STOPPING_SECONDS = 60.0


def report(learner: Learner, ending: Ending) -> int:
    """Report a learner's end. Returns the agent's exit code. Raises: Fenced."""
    seconds = _STOPPING_SECONDS if learner.control.stop_requested else _SECONDS
    if not learner.metrics.flush(seconds):
        warn("the last metrics did not reach the API")
    if not learner.log.flush(seconds):
        warn("the last log lines did not reach the API")
    if learner.control.fenced:
        raise Fenced
    learner.heartbeat.stop()
    told = {"outputs": learner.outputs, "leftovers": learner.leftovers}
    _report_exit(learner.api, learner.spec.rank, ending, learner.log.last_lines, seconds, told)
    return ending.exit_code


def report_early(api: ApiClient, rank: int, ending: Ending) -> int:
    """Report the end of a learner that has not begun. Returns the agent's exit code. Raises: Fenced."""
    _report_exit(api, rank, ending, [], _STOPPING_SECONDS)
    return ending.exit_code


def _report_exit(
    api: ApiClient,
    rank: int,
    ending: Ending,
    last_lines: Sequence[str],
    deadline: float,
    told: Mapping[str, Mapping[str, Any] | None] = MappingProxyType({}),
) -> None:
    """``exit.json`` in the installation's store first, then the API; best effort on both."""
    try:
        _write_file(api, rank, ending)
    except (TrainerError, Unreachable) as error:
        warn(f"{_KEY} was not written: {error}")
    try:
        api.exit(ending.exit_code, ending.reason, last_lines, deadline, told)
    except TrainerError as error:
        warn(f"the exit was not reported: {error}")


def _write_file(api: ApiClient, rank: int, ending: Ending) -> None:
    document = {
        "rank": rank,
        "exit_code": ending.exit_code,
        "reason": api.mask.text(ending.reason)[:_LONGEST_REASON],
        "at": datetime.now(timezone.utc).isoformat(),
    }
    url = api.object_urls("exit", "put", [_KEY], deadline=_FILE_SECONDS)[_KEY]
    answer = Http().request("PUT", url, body=json.dumps(document).encode(), timeout=_FILE_SECONDS)
    if answer.status >= 300:
        raise TrainerError(f"the store answers {answer.status}")
