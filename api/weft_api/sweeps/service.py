"""The work behind the routes of sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_row
from weft_api.code.service import record_code
from weft_api.context import Context
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.paging import decode, encode, newest_first
from weft_api.http.problems import CONFLICT, INVALID_REQUEST, FieldProblem, Problem, invalid, not_found
from weft_api.jobs.submission import Submission
from weft_api.jobs.submit import Checked, cap_priority, check, look_up_all, read_manifest
from weft_api.sweeps.schemas import AskBody, SweepDetail, SweepPage, SweepView, TellBody, TrialPage, TrialView
from weft_core.ids import new_id
from weft_core.manifest import Manifest, ManifestError, ParsedManifest, Sweep, Value
from weft_core.manifest.problems import Problem as ManifestProblem
from weft_core.store.credentials import seal_all
from weft_core.store.models import Job, SweepRow, SweepState, Trial, TrialState, User
from weft_core.store.packages import pack_packages
from weft_core.store.scope import Scope
from weft_core.sweeps import trials
from weft_core.sweeps.search import Proposal

_MANUAL = "manual"


# --- submit ---


def submit(context: Context, who: Principal, submission: Submission, once: Once) -> tuple[SweepView, bool]:
    """Make a sweep. Everything that could make one of its trials invalid is checked now, as for a job.

    Returns:
        The sweep, and whether an earlier request with the same Idempotency-Key has made it.

    Raises:
        ManifestError, BundleError, Problem: it can't be one.
        StoreError: the installation's store is away; nothing has been made.
    """
    if submission.keepalive is not None:
        raise invalid("body.keepalive", "a sweep outlives the program that submits it", accepted="no keepalive")
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (earlier := once.seen(scope)) is not None:
            return _show(scope, find_sweep(scope, earlier)), True
        parsed = read_manifest(context, submission)
        _try_values(context, parsed)
        checks = look_up_all(context, scope, who, submission, parsed)
    checked = check(context, who, submission, parsed, checks)
    made = _insert(context, who, submission, once, checked)
    context.wake.changed(made[0].id)
    return made


def _insert(
    context: Context, who: Principal, submission: Submission, once: Once, checked: Checked
) -> tuple[SweepView, bool]:
    manifest, sweep_id = checked.parsed.manifest, new_id("swp")
    priority, lowered = cap_priority(who, manifest.priority)
    manifest = manifest.model_copy(update={"priority": priority})
    with context.database.transaction() as session:
        scope = who.scope(session)
        if (winner := once.claim(scope, sweep_id)) != sweep_id:
            return _show(scope, find_sweep(scope, winner)), True
        code = submission.code_sha256
        if checked.info and submission.code:
            code = submission.code.sha256
            record_code(scope, code, checked.info)
        sweep = SweepRow(
            id=sweep_id,
            user_id=who.user_id,
            name=manifest.name,
            manifest=manifest.model_dump(mode="json", exclude_none=True),
            code_sha256=code,
            credentials=seal_all(context.box, checked.parsed.credentials),
            packages=pack_packages(checked.packages),
            pretrained_id=checked.pretrained_id,
            budget_id=who.budget,
        )
        scope.add(sweep)
        session.flush()
        session.refresh(sweep)
        about("sweep", sweep_id)
        notes = [*manifest.notes, *checked.warnings, *lowered]
        return _show(scope, sweep).model_copy(update={"notes": notes}), False


def _try_values(context: Context, parsed: ParsedManifest) -> None:
    """Make a trial's manifest with each value of the parameters that set other keys than ``env``.

    Raises:
        ManifestError: a value does not fit its key; or there is no sweep in the manifest.
    """
    search = parsed.manifest.sweep
    if search is None:
        accepted = "a mapping with parameters, metric and more"
        raise ManifestError([ManifestProblem("sweep", f"missing: expected {accepted}", accepted=accepted)])
    kit = trials.Kit(context.settings, context.box)
    first = search.given({name: next(iter(_some(search, name))) for name in search.names}, 0)
    for name, parameter in search.parameters.items():
        if parameter.set is None or parameter.set.startswith("env."):
            continue
        for value in _some(search, name):
            try:
                trials.trial_manifest(parsed.manifest, {**first, name: value}, kit, parsed.credentials)
            except ManifestError as error:
                where = f"sweep.parameters.{name}"
                line, column = parsed.position(where)
                message = f"its value {value!r} is refused: {'; '.join(map(str, error.problems))}"
                raise ManifestError([ManifestProblem(where, message, line, repr(value), None, column)]) from None


def _some(search: Sweep, name: str) -> Iterable[Value]:
    """The values of a list, or the ends of a range."""
    parameter = search.parameters[name]
    if parameter.kind == "values":
        return parameter.values
    ends = (parameter.low, parameter.high)
    return [int(end) for end in ends] if parameter.kind in ("int", "int_log") else ends


# --- read ---


def find_sweep(scope: Scope, sweep_id: str, lock: bool = False) -> SweepRow:
    """The sweep of this project with this id. Raises Problem not_found."""
    return find_row(scope, SweepRow, sweep_id, "sweep", lock=lock)


def list_sweeps(scope: Scope, limit: int, cursor: str | None) -> SweepPage:
    """The newest first."""
    page, following = newest_first(scope, SweepRow, limit, cursor)
    return SweepPage(sweeps=_views(scope, page), next_cursor=following)


def show_sweep(scope: Scope, sweep_id: str) -> SweepDetail:
    sweep = find_sweep(scope, sweep_id)
    return SweepDetail(**_show(scope, sweep).model_dump(), manifest=sweep.manifest)


def list_trials(scope: Scope, sweep_id: str, best_first: bool, limit: int, cursor: str | None) -> TrialPage:
    """By number, or those with a value, the best first."""
    sweep = find_sweep(scope, sweep_id)
    query = scope.select(Trial, Trial.sweep_id == sweep.id)
    after = int(_number(decode(cursor, 1)[0])) if cursor is not None else 0
    if best_first:
        order = Trial.value.desc() if trials.search_of(sweep).goal == "max" else Trial.value.asc()
        query = query.where(Trial.state == TrialState.COMPLETED).order_by(order, Trial.number).offset(after)
    else:
        query = query.where(Trial.number >= after).order_by(Trial.number)
    rows = scope.all(query.limit(limit + 1))
    page = rows[:limit]
    following = after + limit if best_first else (page[-1].number + 1 if page else 0)
    return TrialPage(
        trials=_trial_views(scope, page), next_cursor=encode(str(following)) if len(rows) > limit else None
    )


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise invalid("query.cursor", "not a cursor that this API gave", accepted="`next_cursor` of the page before")
    return int(text)


def _show(scope: Scope, sweep: SweepRow) -> SweepView:
    return _views(scope, [sweep])[0]


def _views(scope: Scope, sweeps: Sequence[SweepRow]) -> list[SweepView]:
    wanted = [(sweep.id, sweep.best) for sweep in sweeps if sweep.best is not None]
    best = scope.all(scope.select(Trial, tuple_(Trial.sweep_id, Trial.number).in_(wanted))) if wanted else []
    shown = dict(zip((trial.sweep_id for trial in best), _trial_views(scope, best), strict=True))
    users = select(User.id, User.name).where(User.id.in_({sweep.user_id for sweep in sweeps}))
    names = dict(scope.session.execute(users).all()) if sweeps else {}
    return [_view(sweep, shown.get(sweep.id), names[sweep.user_id]) for sweep in sweeps]


def _view(sweep: SweepRow, best: TrialView | None, user: str) -> SweepView:
    search = trials.search_of(sweep)
    return SweepView(
        id=sweep.id,
        name=sweep.name,
        state=sweep.state,
        reason=sweep.reason,
        metric=search.metric,
        goal=search.goal,
        search=search.search,
        trials=search.trials,
        parallel=search.parallel,
        asked=sweep.asked,
        told=sweep.told,
        best=best,
        user=user,
        created_at=sweep.created_at,
        ended_at=sweep.ended_at,
    )


def _trial_views(scope: Scope, rows: Sequence[Trial]) -> list[TrialView]:
    ids = [trial.job_id for trial in rows if trial.job_id is not None]
    query = scope.select(Job, Job.id.in_(ids)).with_only_columns(Job.id, Job.state)
    states = dict(scope.session.execute(query).all()) if ids else {}
    return [
        TrialView(
            number=trial.number,
            state=trial.state,
            parameters=trial.parameters,
            value=trial.value,
            reason=trial.reason,
            parent=trial.parent,
            job=trial.job_id,
            job_state=states.get(trial.job_id) if trial.job_id else None,
            created_at=trial.created_at,
            ended_at=trial.ended_at,
        )
        for trial in rows
    ]


# --- steer ---


def pause(context: Context, who: Principal, sweep_id: str, once: Once) -> SweepView:
    def change(_: Session, sweep: SweepRow) -> None:
        if sweep.state not in (SweepState.RUNNING, SweepState.PAUSED):
            raise Problem(CONFLICT, f"the sweep is {sweep.state}: only a RUNNING one can be paused")
        sweep.state, sweep.reason = SweepState.PAUSED.value, f"paused by {who.user}"

    return _change(context, who, sweep_id, change, once)


def resume(context: Context, who: Principal, sweep_id: str, once: Once) -> SweepView:
    def change(_: Session, sweep: SweepRow) -> None:
        _check_budget(who, sweep)
        if sweep.state not in (SweepState.RUNNING, SweepState.PAUSED):
            raise Problem(CONFLICT, f"the sweep is {sweep.state}: only a PAUSED one can be resumed")
        sweep.state, sweep.reason, sweep.next_step_at = SweepState.RUNNING.value, "", func.now()

    return _change(context, who, sweep_id, change, once)


def stop(context: Context, who: Principal, sweep_id: str, once: Once) -> SweepView:
    def change(_: Session, sweep: SweepRow) -> None:
        if sweep.state in (SweepState.RUNNING, SweepState.PAUSED):
            trials.end(sweep, SweepState.STOPPED, f"stopped by {who.user}")
        elif sweep.state not in (SweepState.STOPPING, SweepState.STOPPED):
            raise Problem(CONFLICT, f"the sweep is {sweep.state} already: there is nothing to stop")

    return _change(context, who, sweep_id, change, once)


def _change(
    context: Context, who: Principal, sweep_id: str, verb: Callable[[Session, SweepRow], None], once: Once
) -> SweepView:
    with context.database.transaction() as session:
        scope = who.scope(session)
        sweep = find_sweep(scope, sweep_id, lock=True)
        if once.seen(scope) is None:
            verb(session, sweep)
        once.claim(scope, sweep_id)
        session.flush()
        session.refresh(sweep)
        return _show(scope, sweep)


# --- ask and tell ---


def ask(context: Context, who: Principal, sweep_id: str, body: AskBody, once: Once) -> TrialView:
    """Make a trial beyond those that the sweep's own search makes, and its job if it is to run."""
    kit = trials.Kit(context.settings, context.box)
    with context.database.transaction() as session:
        scope = who.scope(session)
        sweep = find_sweep(scope, sweep_id, lock=True)
        if (earlier := once.seen(scope)) is not None:
            return _trial_views(scope, [_find_trial(scope, sweep, int(earlier))])[0]
        _check_budget(who, sweep)
        search = trials.search_of(sweep)
        if sweep.state != SweepState.RUNNING:
            raise Problem(CONFLICT, f"the sweep is {sweep.state}: only a RUNNING one makes trials")
        if search.population is not None:
            raise Problem(CONFLICT, "the search pbt makes all of its trials itself: one more would have no place")
        if sweep.asked >= search.trials:
            raise Problem(CONFLICT, f"all {search.trials} trials of the sweep have been asked for")
        proposal = _given(search, body) if body.parameters is not None else None
        if proposal is None:
            if search.search == _MANUAL:
                raise invalid("body.parameters", "missing: the search is manual", accepted="a value for each parameter")
            proposal = trials.ask(session, sweep)
        once.claim(scope, str(sweep.asked))
        trial, woken = trials.begin(session, kit, sweep, proposal, body.run)
        session.refresh(trial)
        view = _trial_views(scope, [trial])[0]
    for job_id in woken:
        context.wake.job(job_id)
    return view


def _check_budget(who: Principal, sweep: SweepRow) -> None:
    """A token with a budget makes no trials that are charged elsewhere."""
    if who.budget is not None and who.budget != sweep.budget_id:
        raise Problem(CONFLICT, "your token has a budget, and the trials of this sweep are not charged to it")


def _given(search: Sweep, body: AskBody) -> Proposal:
    given, problems = body.parameters or {}, []
    for name in sorted(given.keys() ^ search.parameters.keys()):
        message = "missing" if name in search.parameters else "the sweep has no such parameter"
        accepted = f"a value for each of {', '.join(search.names)}"
        problems.append(FieldProblem(path=f"body.parameters.{name}", message=message, accepted=accepted))
    for name in sorted(given.keys() & search.parameters.keys()):
        if wrong := search.parameters[name].refusal(given[name]):
            path, found = f"body.parameters.{name}", repr(given[name])[:100]
            problems.append(
                FieldProblem(path=path, message="none of the parameter's values", found=found, accepted=wrong)
            )
    if problems:
        raise Problem(INVALID_REQUEST, f"{problems[0].path}: {problems[0].message}", problems)
    return Proposal(dict(given))


def tell(context: Context, who: Principal, sweep_id: str, number: int, body: TellBody) -> TrialView:
    """Close a trial that runs elsewhere."""
    with context.database.transaction() as session:
        scope = who.scope(session)
        sweep = find_sweep(scope, sweep_id, lock=True)
        trial = _find_trial(scope, sweep, number)
        if trial.runs:
            raise Problem(CONFLICT, f"trial {number} is a job: its value is the metric that the job reports")
        if trial.state == TrialState.RUNNING:
            state = TrialState.COMPLETED if body.failed is None else TrialState.FAILED
            trials.tell(session, sweep, trial, state, body.value, body.failed or "")
            sweep.next_step_at = func.now()
            session.flush()
            session.refresh(trial)
        elif (trial.value, trial.reason) != (body.value, body.failed or ""):
            raise Problem(CONFLICT, f"trial {number} is {trial.state} already, with another result")
        return _trial_views(scope, [trial])[0]


def _find_trial(scope: Scope, sweep: SweepRow, number: int) -> Trial:
    found = scope.find(Trial, Trial.sweep_id == sweep.id, Trial.number == number)
    if found is None:
        raise not_found("trial", str(number))
    return found


def manifest_of(scope: Scope, sweep_id: str) -> Manifest:
    return Manifest.model_validate(find_sweep(scope, sweep_id).manifest)
