"""The learner's last words: ``exit.json`` in the installation's store first, then the API."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from weft_trainer.api import ApiClient
from weft_trainer.endings import Ending
from weft_trainer.errors import TrainerError
from weft_trainer.http import Http, Unreachable

_KEY = "exit.json"
_FILE_SECONDS = 15.0
_LONGEST_REASON = 2000


def report_exit(
    api: ApiClient,
    rank: int,
    ending: Ending,
    last_lines: Sequence[str],
    deadline: float,
    outputs: Mapping[str, Any] | None = None,
) -> None:
    """Best effort on both. ``outputs`` says what was stored. Raises: Fenced."""
    try:
        _write_file(api, rank, ending)
    except (TrainerError, Unreachable) as error:
        _warn(f"{_KEY} was not written: {error}")
    try:
        api.exit(ending.exit_code, ending.reason[:_LONGEST_REASON], last_lines, deadline, outputs)
    except TrainerError as error:
        _warn(f"the exit was not reported: {error}")


def _write_file(api: ApiClient, rank: int, ending: Ending) -> None:
    document = {
        "rank": rank,
        "exit_code": ending.exit_code,
        "reason": ending.reason[:_LONGEST_REASON],
        "at": datetime.now(timezone.utc).isoformat(),
    }
    url = api.object_urls("exit", "put", [_KEY], deadline=_FILE_SECONDS)[_KEY]
    answer = Http().request("PUT", url, body=json.dumps(document).encode(), timeout=_FILE_SECONDS)
    if answer.status >= 300:
        raise TrainerError(f"the store answers {answer.status}")


def _warn(message: str) -> None:
    print(f"weft_trainer: {message}", file=sys.stderr, flush=True)
