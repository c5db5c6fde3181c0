"""When an attempt has used what it has reserved of a budget (docs/budgets.md). Pure functions of a view."""

from __future__ import annotations

from datetime import datetime, timedelta

from weft_core.lifecycle.view import View


def budget_end(view: View) -> datetime | None:
    """When the open attempt must begin to save its last checkpoint, so that it ends within its reservation.

    None: it has no budget, or has not started.
    """
    attempt = view.open
    starts = [learner.started_at for learner in view.learners if learner.started_at is not None]
    if attempt is None or not attempt.budget or not starts:
        return None
    gpus = int(attempt.resources["gpus"]) * view.job.learners
    return min(starts) + timedelta(seconds=max(0.0, attempt.reserved / gpus - view.grace()))


def over_budget(view: View) -> str | None:
    """Why the open attempt is to be halted now: it has used what it has reserved."""
    end, attempt = budget_end(view), view.open
    if end is None or attempt is None or view.now < end:
        return None
    amount = f"{attempt.reserved / 3600:,.4g} GPU-hours"
    return f"halted by the budget of token {attempt.budget}: the {amount} that it had for this attempt are used up"
