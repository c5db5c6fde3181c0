"""Which node is to blame for what happened to an attempt, if any is: pure functions of a view.

The exit code of a program never blames a node, nor do its memory and its disk. A node is blamed when the engine says
that it does not answer, when a learner vanishes from it, or when the one rank for which a gang waits runs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_core.lifecycle.actions import Settle
from weft_core.lifecycle.failures import VANISHED, VANISHING
from weft_core.lifecycle.view import View


def blamed_by_end(view: View, verdict: Settle) -> str | None:
    """The node of the learner that vanished."""
    if verdict.error_code != VANISHED or verdict.rank is None:
        return None
    return _nodes(view).get(verdict.rank)


def blamed_by_loss(view: View, rank: int, reason: str) -> str | None:
    """The node of a learner that an elastic attempt has lost, if the learner vanished."""
    return _nodes(view).get(rank) if reason.startswith(VANISHING) else None


def blamed_by_hang(view: View, verdict: Mapping[str, Any]) -> str | None:
    """The node that has all the blamed ranks of a verdict, if ranks on another node wait for them.

    Args:
        verdict: the data of its event (``weft_core.hangs.verdict``).
    """
    nodes = _nodes(view)
    places = {entry["rank"]: nodes.get(entry["learner"] - 1) for entry in verdict.get("ranks", ())}
    blamed = {places.get(rank) for rank in verdict.get("blamed", ())}
    waiting = {places.get(rank) for rank in verdict.get("waiting", ())}
    if len(blamed) != 1 or None in blamed | waiting or not waiting - blamed or waiting & blamed:
        return None
    return blamed.pop()


def _nodes(view: View) -> dict[int, str]:
    """By the learner's own rank."""
    return {learner.rank: learner.node for learner in view.learners if learner.node}
