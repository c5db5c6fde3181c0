"""Rules of a manifest that hold: the code that detects this notes it at once, and a worker acts on it once."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from weft_core.store.jobs import Conflict, record_event, request_halt
from weft_core.store.models import Job, RuleFiring
from weft_core.store.notifications import queue

_LONGEST = 500
"""Characters of a line or a name in a message."""


def note_firing(session: Session, job: Job, rule: int, attempt: int, found: str) -> None:
    """Note that a rule holds, unless it has fired before. This changes no row of the job, and needs no lock of it.

    Args:
        rule: its index in the manifest.
        attempt: the attempt whose line or value fulfils it.
        found: what made it hold, in words.
    """
    shown = "".join(character if character.isprintable() else "\ufffd" for character in found[: _LONGEST + 1])
    if len(shown) > _LONGEST:
        shown = shown[:_LONGEST] + "…"
    row = {"job_id": job.id, "rule": rule, "project_id": job.project_id, "attempt": attempt, "found": shown}
    session.execute(insert(RuleFiring).values(row).on_conflict_do_nothing())


def act_on_firings(session: Session, job_id: str) -> bool:
    """Act on the job's newly fired rules: an event, notifications, a halt. Returns whether the job is to be
    halted; wake the workers then, after the commit."""
    job = session.scalars(select(Job).where(Job.id == job_id).with_for_update()).one_or_none()
    if job is None:
        return False
    mine = (RuleFiring.job_id == job_id) & RuleFiring.acted_at.is_(None)
    halted = False
    for firing in session.scalars(select(RuleFiring).where(mine).order_by(RuleFiring.fired_at, RuleFiring.rule)):
        firing.acted_at = func.now()
        halted |= _act(session, job, firing)
    return halted


def _act(session: Session, job: Job, firing: RuleFiring) -> bool:
    rule = job.manifest["rules"][firing.rule]
    when, then = rule["when"], rule["then"]
    told = {"rule": firing.rule, "when": when, "then": then}
    message = f"the rule {when!r} has fired: {firing.found}"
    event = record_event(session, job, "rule", message, attempt=firing.attempt, data=told)
    if "notify" in then:
        queue(session, event, range(len(job.manifest.get("notify") or ())))
    if "halt" in then:
        with suppress(Conflict):  # it has ended by itself
            request_halt(session, job, reason=f"halted by the rule {when!r}: {firing.found}")
            return True
    return False
