"""The work behind the routes of schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_row
from weft_api.code.service import record_code
from weft_api.context import Context
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.paging import decode, encode, newest_first
from weft_api.http.problems import CONFLICT, Problem, invalid, not_found
from weft_api.jobs.submission import Submission
from weft_api.jobs.submit import Checked, cap_priority, check, look_up_all, read_manifest
from weft_api.schedules.schemas import ScheduleDetail, SchedulePage, ScheduleView, StartPage, StartView
from weft_core import schedules
from weft_core.ids import new_id
from weft_core.manifest import Manifest, ManifestError, ParsedManifest
from weft_core.manifest.problems import Problem as ManifestProblem
from weft_core.secrets import SecretsUnreadable
from weft_core.store.credentials import seal_all
from weft_core.store.members import submitting_role
from weft_core.store.models import Job, ScheduleRow, ScheduleState, Start, User
from weft_core.store.packages import pack_packages
from weft_core.store.scope import Scope

_MOST = 200
"""Schedules of a project."""


# --- create ---


def create(context: Context, who: Principal, submission: Submission, once: Once) -> tuple[ScheduleView, bool]:
    """Store a manifest. All that could make its jobs invalid is checked now, as for a job.

    Returns:
        The schedule, and whether an earlier request with the same Idempotency-Key has made it.

    Raises:
        ManifestError, BundleError, Problem: it can't be one.
        StoreError: the installation's store is away; nothing has been made.
    """
    if submission.keepalive is not None:
        raise invalid("body.keepalive", "a schedule outlives the program that creates it", accepted="no keepalive")
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (earlier := once.seen(scope)) is not None:
            return _show(scope, find_schedule(scope, earlier)), True
        parsed = read_manifest(context, submission)
        _need_trigger(parsed)
        count = session.scalar(select(func.count()).where(ScheduleRow.project_id == scope.project_id)) or 0
        if count >= _MOST:
            raise Problem(
                CONFLICT, f"the project has {count} schedules, accepted are at most {_MOST}: delete one first"
            )
        checks = look_up_all(context, scope, who, submission, parsed)
    checked = check(context, who, submission, parsed, checks)
    return _insert(context, who, submission, once, checked)


def _need_trigger(parsed: ParsedManifest) -> None:
    if parsed.manifest.schedule is None and parsed.manifest.on is None:
        accepted = "schedule: '0 3 * * *', or on: MODEL@STAGE"
        message = f"missing: nothing says when its jobs start; expected {accepted}"
        raise ManifestError([ManifestProblem("schedule", message, accepted=accepted)])


def _insert(
    context: Context, who: Principal, submission: Submission, once: Once, checked: Checked
) -> tuple[ScheduleView, bool]:
    manifest, schedule_id = checked.parsed.manifest, new_id("sch")
    priority, lowered = cap_priority(who, manifest.priority)
    manifest = manifest.model_copy(update={"priority": priority})
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (winner := once.claim(scope, schedule_id)) != schedule_id:
            return _show(scope, find_schedule(scope, winner)), True
        code = submission.code_sha256
        if checked.info and submission.code:
            code = submission.code.sha256
            record_code(scope, code, checked.info)
        row = ScheduleRow(
            id=schedule_id,
            user_id=who.user_id,
            name=manifest.name,
            manifest=manifest.model_dump(mode="json", exclude_none=True),
            code_sha256=code,
            credentials=seal_all(context.box, checked.parsed.credentials),
            packages=pack_packages(checked.packages),
            budget_id=who.budget,
            model=manifest.on.name if manifest.on else None,
            stage=manifest.on.version if manifest.on else None,
        )
        scope.add(row)
        schedules.activate(session, row)
        session.flush()
        session.refresh(row)
        about("schedule", schedule_id)
        notes = [*manifest.notes, *checked.warnings, *lowered]
        return _show(scope, row).model_copy(update={"notes": notes}), False


# --- read ---


def find_schedule(scope: Scope, schedule_id: str, lock: bool = False) -> ScheduleRow:
    """The schedule of this project with this id. Raises Problem not_found."""
    return find_row(scope, ScheduleRow, schedule_id, "schedule", lock=lock)


def list_schedules(scope: Scope, limit: int, cursor: str | None) -> SchedulePage:
    """The newest first."""
    page, following = newest_first(scope, ScheduleRow, limit, cursor)
    return SchedulePage(schedules=_views(scope, page), next_cursor=following)


def show_schedule(scope: Scope, schedule_id: str) -> ScheduleDetail:
    row = find_schedule(scope, schedule_id)
    return ScheduleDetail(**_show(scope, row).model_dump(), manifest=row.manifest)


def manifest_of(scope: Scope, schedule_id: str) -> Manifest:
    return schedules.manifest_of(find_schedule(scope, schedule_id))


def list_starts(scope: Scope, schedule_id: str, limit: int, cursor: str | None) -> StartPage:
    """The newest first."""
    row = find_schedule(scope, schedule_id)
    query = scope.select(Start, Start.schedule_id == row.id).order_by(Start.id.desc())
    if cursor is not None:
        [last] = decode(cursor, 1)
        if not last.isdigit() or len(last) > 18:
            accepted = "`next_cursor` of the page before"
            raise invalid("query.cursor", "not a cursor that this API gave", accepted=accepted)
        query = query.where(Start.id < int(last))
    rows = scope.all(query.limit(limit + 1))
    page = rows[:limit]
    return StartPage(
        starts=_start_views(scope, page), next_cursor=encode(str(page[-1].id)) if len(rows) > limit else None
    )


def _show(scope: Scope, row: ScheduleRow) -> ScheduleView:
    return _views(scope, [row])[0]


def _views(scope: Scope, rows: Sequence[ScheduleRow]) -> list[ScheduleView]:
    newest = (
        scope.select(Start, Start.schedule_id.in_([row.id for row in rows]))
        .ext(distinct_on(Start.schedule_id))
        .order_by(Start.schedule_id, Start.id.desc())
    )
    last = scope.all(newest) if rows else []
    shown = dict(zip((start.schedule_id for start in last), _start_views(scope, last), strict=True))
    names = _names(scope, [row.user_id for row in rows])
    return [_view(row, shown.get(row.id), names[row.user_id]) for row in rows]


def _view(row: ScheduleRow, last: StartView | None, user: str) -> ScheduleView:
    manifest = schedules.manifest_of(row)
    times, on = manifest.schedule, manifest.on
    return ScheduleView(
        id=row.id,
        name=row.name,
        state=row.state,
        reason=row.reason,
        cron=times.cron if times else None,
        timezone=times.timezone if times else None,
        overlap=times.overlap if times else None,
        on=f"{on.name}@{on.version}" if on else None,
        next_at=row.due_at,
        last=last,
        user=user,
        created_at=row.created_at,
    )


def _start_views(scope: Scope, rows: Sequence[Start]) -> list[StartView]:
    ids = [start.job_id for start in rows if start.job_id is not None]
    query = scope.select(Job, Job.id.in_(ids)).with_only_columns(Job.id, Job.state)
    states = dict(scope.session.execute(query).all()) if ids else {}
    names = _names(scope, [start.user_id for start in rows if start.user_id is not None])
    return [
        StartView(
            id=start.id,
            trigger=start.trigger,
            due_at=start.due_at,
            state=start.state,
            reason=start.reason,
            version=start.version,
            user=names[start.user_id] if start.user_id else None,
            job=start.job_id,
            job_state=states.get(start.job_id) if start.job_id else None,
        )
        for start in rows
    ]


def _names(scope: Scope, ids: Sequence[str]) -> dict[str, str]:
    return dict(scope.session.execute(select(User.id, User.name).where(User.id.in_(ids))).all()) if ids else {}


# --- steer ---


def pause(context: Context, who: Principal, schedule_id: str, once: Once) -> ScheduleView:
    def change(session: Session, row: ScheduleRow) -> None:
        if row.state == ScheduleState.ACTIVE:
            schedules.pause(session, row, f"paused by {who.user}")

    return _change(context, who, schedule_id, change, once)


def resume(context: Context, who: Principal, schedule_id: str, once: Once) -> ScheduleView:
    def change(session: Session, row: ScheduleRow) -> None:
        _check_budget(who, row)
        if submitting_role(session, row.project_id, row.user_id) is None:
            message = "its owner may not submit jobs to this project: create a schedule of your own from its manifest"
            raise Problem(CONFLICT, message)
        if row.state == ScheduleState.PAUSED:
            schedules.activate(session, row)

    return _change(context, who, schedule_id, change, once)


def _change(
    context: Context, who: Principal, schedule_id: str, verb: Callable[[Session, ScheduleRow], None], once: Once
) -> ScheduleView:
    with context.database.transaction() as session:
        scope = who.scope(session)
        row = find_schedule(scope, schedule_id, lock=True)
        if once.seen(scope) is None:
            verb(session, row)
        once.claim(scope, schedule_id)
        session.flush()
        session.refresh(row)
        return _show(scope, row)


def start(context: Context, who: Principal, schedule_id: str, once: Once) -> StartView:
    """Start a job now."""
    with context.database.transaction() as session:
        scope = who.scope(session)
        row = find_schedule(scope, schedule_id, lock=True)
        if (earlier := once.seen(scope)) is not None:
            return _start_views(scope, [_find_start(scope, row, int(earlier))])[0]
        _check_budget(who, row)
        try:
            begun, woken = schedules.request(scope, context.settings, context.box, row, who.user_id)
        except (schedules.NotStarted, SecretsUnreadable) as error:
            raise Problem(CONFLICT, f"no job can be started: {error}") from error
        once.claim(scope, str(begun.id))
        session.refresh(begun)
        view = _start_views(scope, [begun])[0]
    for job_id in woken:
        context.wake.job(job_id)
    return view


def _find_start(scope: Scope, row: ScheduleRow, start_id: int) -> Start:
    found = scope.find(Start, Start.schedule_id == row.id, Start.id == start_id)
    if found is None:
        raise not_found("start", str(start_id))
    return found


def _check_budget(who: Principal, row: ScheduleRow) -> None:
    """A token with a budget starts no jobs that are charged elsewhere."""
    if who.budget is not None and who.budget != row.budget_id:
        raise Problem(CONFLICT, "your token has a budget, and the jobs of this schedule are not charged to it")


def delete(context: Context, who: Principal, schedule_id: str) -> None:
    """Remove a schedule with its starts. Its jobs stay."""
    with context.database.transaction() as session:
        scope = who.scope(session)
        session.delete(find_schedule(scope, schedule_id, lock=True))
