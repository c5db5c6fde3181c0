"""The hook that `ray start` calls before it starts a node (RAY_START_HOOK), in Ray's environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_RUNTIME = Path(__file__).parents[3] / "trainer_images" / "runtime"


def prepare(params: Any, head: bool) -> None:
    """Be as patient as launcher `ray` is, and start no process of which neither an engine nor a learner asks anything:
    no Ray Client server, no log monitor. Each takes a second of a core."""
    sys.path.insert(0, str(_RUNTIME))  # of this process alone: what runs on the cluster brings Weft's code along
    from weft_trainer.launchers.ray_options import start_hook

    start_hook(params, head)
    params.include_log_monitor = False
