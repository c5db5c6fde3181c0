"""Whether a gang that shows no step hangs, by several looks at all of its ranks. In doubt, it does not."""

from __future__ import annotations

from collections.abc import Mapping

from weft_core.hangs.ranks import Rank, read_ranks
from weft_core.hangs.report import Report

_BUSY_PERCENT = 10.0
"""The use of one core from which on a rank works, although its stack stays the same: a call of C may take long."""


def hangs(reports: Mapping[int, Report | None], ended: Mapping[int, str]) -> bool:
    """Whether ranks wait in a collective that can't end.

    Args:
        reports: of each learner; None: its agent has reported nothing.
        ended: the learners whose program has ended, and how.
    """
    ranks = read_ranks(reports, ended)
    running = [rank for rank in ranks if not rank.ended]
    if not all(rank.known and rank.still for rank in running):
        return False
    waiting = [rank for rank in running if rank.flies or rank.waits]
    if not waiting:  # their stacks do not show whether steps and backward passes wait
        waiting = [rank for rank in running if rank.place.kind in ("step", "backward")]
    others = [rank for rank in ranks if rank not in waiting]
    if not waiting:
        return False
    # A rank in a step may compute. That the others have ended says nothing: it may evaluate the model for all of them.
    told = any(rank.flies or rank.waits for rank in waiting) or not all(rank.ended for rank in others)
    if others and told:
        return not any(_works(rank) for rank in others)
    # A gang that often talks may be in the same collective at every look. Its counts would differ. Without counts,
    # Horovod's stall inspector may say that each rank waits for a tensor that another rank has not submitted.
    return all(rank.counted or rank.missing for rank in waiting)


def _works(rank: Rank) -> bool:
    return not rank.ended and not rank.stopped and rank.cpu_percent >= _BUSY_PERCENT
