"""How many jobs there are: counted while that is cheap, else as Postgres's planner estimates it."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import ARRAY, Text, func, literal, select, text
from sqlalchemy.orm import Session

from weft_core.lifecycle.states import JobState
from weft_core.store.models import Job

MOST_COUNTED = 1000
"""Jobs of a project, or in a state, that are counted; a larger number is an estimate."""

# Of the last ANALYZE. Only the most common values are there, which are all that have a large share.
_ESTIMATES = """
select value, round(share * greatest(reltuples, 0)) from pg_stats
    join pg_class on oid = to_regclass('jobs'),
    unnest(most_common_vals::text::text[], most_common_freqs) as common(value, share)
where schemaname = current_schema() and tablename = 'jobs' and attname = :column
"""


def by_state(session: Session) -> dict[str, int]:
    """How many jobs of all projects are in each state."""
    states = select(func.unnest(literal([state.value for state in JobState], ARRAY(Text))).label("state")).subquery()
    first = select(literal(1)).where(Job.state == states.c.state).limit(MOST_COUNTED + 1).correlate(states).lateral()
    counted = select(func.count()).select_from(first).scalar_subquery()
    found = dict(session.execute(select(states.c.state, counted)).all())
    more = estimates(session, "state") if max(found.values()) > MOST_COUNTED else {}
    return {state: max(n, more.get(state, 0)) if n > MOST_COUNTED else n for state, n in found.items()}


def estimates(session: Session, column: Literal["project_id", "state"]) -> dict[str, int]:
    """About how many jobs have each value of a column. Not for a confined transaction, which may not look."""
    return {value: int(jobs) for value, jobs in session.execute(text(_ESTIMATES), {"column": column})}
