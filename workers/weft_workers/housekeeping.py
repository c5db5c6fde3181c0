"""The work that belongs to no job: checking the engines and their capacity, stopping orphans, removing old keys."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from weft_core.engine import Capacity, EngineUnreachable, Node, Observation
from weft_core.lifecycle.states import TERMINAL, Desired
from weft_core.objects import overlay_key
from weft_core.packages import BUILD_KIND
from weft_core.store.audit import expire
from weft_core.store.backups import BackupRuns, may_delete
from weft_core.store.jobs import request_delete
from weft_core.store.models import (
    Attempt,
    EngineStatus,
    IdempotencyKey,
    Job,
    Overlay,
    OverlayState,
    Queue,
    QueueChange,
    SignInLink,
    Token,
)
from weft_workers.context import Context
from weft_workers.observing import ObservedEngine

log = structlog.get_logger(__name__)

_KEY_AGE = timedelta(hours=24)
_LINK_AGE = timedelta(days=1)
_BUILD_AGE = timedelta(days=1)
_OVERLAY_AGE = timedelta(days=30)
_BATCH = 100
_AUDIT_BATCH = 10_000
_ORPHAN_STOP = timedelta(seconds=10)


@dataclass
class Housekeeping:
    """Checks the engines; remembers since when it has seen each orphan."""

    context: Context
    orphans: dict[tuple[str, str], float] = field(default_factory=dict)

    def check(self, engine: ObservedEngine) -> None:
        """Bring one engine's row up to date, and stop its orphans."""
        try:
            capacity = engine.capacity(fresh=True)
            seen = engine.observe(fresh=True).answer
        except EngineUnreachable as error:
            note_engine(self.context, engine, None, str(error))
            return
        note_engine(self.context, engine, capacity, None)
        self._stop_orphans(engine, seen)

    def _stop_orphans(self, engine: ObservedEngine, seen: Mapping[str, Observation]) -> None:
        """Stop runs that have had no open attempt for a while. An attempt's row is always written before its run
        exists."""
        now, grace = time.monotonic(), self.context.settings.timings.orphan_grace
        with self.context.database.transaction() as session:
            wanted = set(
                session.scalars(
                    select(Attempt.run_name).where(Attempt.run_name.in_(list(seen)), Attempt.ended_at.is_(None))
                )
            )
        unwanted = seen.keys() - wanted
        for key in [key for key in self.orphans if key[0] == engine.name and key[1] not in unwanted]:
            del self.orphans[key]
        for name in sorted(unwanted):
            if now - self.orphans.setdefault((engine.name, name), now) < grace:
                continue
            log.warning("stopping a run that belongs to no open attempt", engine=engine.name, run=name)
            try:
                engine.stop(name, _ORPHAN_STOP)
            except EngineUnreachable as error:
                log.warning("could not stop it", run=name, error=str(error))

    def tidy(self) -> None:
        """Do the work that is due only now and then."""
        self.drop_old_keys()
        self.drop_old_sessions()
        self.drop_old_links()
        self.drop_old_engines()
        self.drop_old_builds()
        with suppress(BackupRuns):
            self.drop_unused_overlays()
        self.drop_old_audit_records()

    def drop_old_builds(self) -> list[str]:
        """Delete the jobs that built packages, a day after their end; returns which. The packages stay."""
        ended = (
            select(Job)
            .where(Job.kind == BUILD_KIND, Job.state.in_([state.value for state in TERMINAL]))
            .where(Job.ended_at < func.now() - _BUILD_AGE, Job.desired != Desired.DELETED.value)
            .order_by(Job.id)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        with self.context.database.transaction() as session:
            gone = session.scalars(ended).all()
            for job in gone:
                request_delete(session, job)
            return [job.id for job in gone]

    def drop_unused_overlays(self) -> list[str]:
        """Remove the packages that no job has used for a month; returns which overlays. Their locks stay, so that a
        rerun can have the same versions built again.

        Raises:
            BackupRuns: nothing may be deleted now.
        """
        using = select(Job.id).where(Job.overlay_id == Overlay.id, Job.state.not_in([s.value for s in TERMINAL]))
        unused = (
            select(Overlay)
            .where(Overlay.state == OverlayState.READY, Overlay.used_at < func.now() - _OVERLAY_AGE, ~using.exists())
            .order_by(Overlay.id)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        with self.context.database.transaction() as session:
            may_delete(session)
            gone = session.scalars(unused).all()
            for overlay in gone:
                overlay.state = OverlayState.DROPPED
            session.flush()
            archives = {(overlay.project_id, overlay.sha256) for overlay in gone if overlay.sha256}
            shared = select(Overlay.project_id, Overlay.sha256).where(
                Overlay.state == OverlayState.READY, tuple_(Overlay.project_id, Overlay.sha256).in_(archives)
            )
            archives -= {(project_id, sha256) for project_id, sha256 in session.execute(shared)}
            dropped = [overlay.id for overlay in gone]
        # After the commit: a failed deletion leaves a file without a row, and not a row without its file.
        self.context.objects.delete([overlay_key(project_id, sha256) for project_id, sha256 in sorted(archives)])
        return dropped

    def drop_old_audit_records(self) -> int:
        """Delete the records of the audit trail that are older than ``audit.retention_days``; returns how many."""
        age, gone = timedelta(days=self.context.settings.audit.retention_days), 0
        while True:
            with self.context.database.transaction() as session:
                batch = expire(session, age, _AUDIT_BATCH)
            gone += batch
            if batch < _AUDIT_BATCH:
                return gone

    def drop_old_engines(self) -> list[str]:
        """Forget engines that left the settings once nothing of theirs is open any more; returns which. A worker with
        other settings writes its own engines' rows anew at its next check."""
        opened = select(Attempt.engine).where(Attempt.ended_at.is_(None))
        with self.context.database.transaction() as session:
            for kept in (Queue, QueueChange):
                session.execute(delete(kept).where(kept.engine.not_in(self.context.settings.engines)))
            gone = session.scalars(
                delete(EngineStatus)
                .where(EngineStatus.name.not_in(self.context.settings.engines), EngineStatus.name.not_in(opened))
                .returning(EngineStatus.name)
            )
            return sorted(gone)

    def drop_old_keys(self) -> int:
        """Forget idempotency keys that have expired; returns how many."""
        with self.context.database.transaction() as session:
            gone = session.execute(
                delete(IdempotencyKey)
                .where(IdempotencyKey.created_at < func.now() - _KEY_AGE)
                .returning(IdempotencyKey.key)
            )
            return len(gone.all())

    def drop_old_sessions(self) -> int:
        """Forget browsers' sessions that have ended; returns how many. (Tokens stay, so that their owners can be looked
        up.)"""
        over = Token.expires_at.is_not(None) & (Token.expires_at < func.now())
        with self.context.database.transaction() as session:
            gone = session.execute(
                delete(Token).where(Token.kind == "browser", over | Token.revoked_at.is_not(None)).returning(Token.id)
            )
            return len(gone.all())

    def drop_old_links(self) -> int:
        """Forget links that signed a browser in, or could have, a day ago; returns how many. (Until then an error says
        whether a link was used, has expired or never existed.)"""
        with self.context.database.transaction() as session:
            old = delete(SignInLink).where(SignInLink.expires_at < func.now() - _LINK_AGE)
            return len(session.execute(old.returning(SignInLink.sha256)).all())


def note_engine(context: Context, engine: ObservedEngine, capacity: Capacity | None, error: str | None) -> None:
    """Write what an engine has (or that it does not answer) into its row."""
    values: dict[str, Any] = {"name": engine.name, "type": engine.kind, "error": error}
    if capacity is not None:
        values |= {"capacity": describe(capacity), "seen_at": func.now(), "unreachable_since": None}
    else:
        values |= {"unreachable_since": func.now()}
    statement = insert(EngineStatus).values(values)
    changes: dict[str, Any] = {name: statement.excluded[name] for name in values if name != "name"}
    if capacity is None:  # since the first failure
        changes["unreachable_since"] = func.coalesce(EngineStatus.unreachable_since, func.now())
    with context.database.transaction() as session:
        session.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))


def describe(capacity: Capacity) -> dict[str, Any]:
    """A capacity as the ``engines`` table keeps it, for people: sums of the nodes that take learners now, and each node
    without its labels, which may be many. The usual values (ready, nothing busy) are left out."""
    usable = [node for node in capacity.nodes if node.ready and not node.potential]
    images = {} if capacity.images is None else {"images": sorted(capacity.images)}
    reasons = {"exposed": capacity.exposed, "shared_network": capacity.shared_network}
    exposed = {name: reason for name, reason in reasons.items() if reason}
    return (
        images
        | exposed
        | {
            "cpus": sum(node.cpus for node in usable),
            "gpus": sum(node.gpus for node in usable),
            "memory": sum(node.memory for node in usable),
            "queue": capacity.queue,
            "nodes": [_describe_node(node) for node in capacity.nodes],
        }
    )


def _describe_node(node: Node) -> dict[str, Any]:
    busy = {"cpus": node.busy.cpus, "gpus": node.busy.gpus, "memory": node.busy.memory}
    unusual = {
        "gpu_type": node.gpu_type,
        "extra": dict(node.extra),
        "busy": {name: amount for name, amount in busy.items() if amount},
        "taints": [f"{taint.key}={taint.value}" if taint.value else taint.key for taint in node.taints],
        "potential": node.potential,
        "not_ready": not node.ready,
    }
    return {
        "name": node.name,
        "cpus": node.cpus,
        "gpus": node.gpus,
        "memory": node.memory,
        **{name: value for name, value in unusual.items() if value},
    }
