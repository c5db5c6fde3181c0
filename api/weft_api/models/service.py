"""Reading and changing the registry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context
from weft_api.http.idempotency import Once
from weft_api.http.paging import decode, encode
from weft_api.http.problems import CONFLICT, NOT_FOUND, RESULTS_GONE, Problem, invalid
from weft_api.models.files import VersionFiles, open_listing, version_files
from weft_api.models.names import model_names, registered_as
from weft_api.models.schemas import (
    FilesSummary,
    ModelDetail,
    ModelPage,
    ModelView,
    PromotionView,
    VersionDetail,
    VersionMetric,
    VersionPage,
    VersionView,
)
from weft_api.storage.locations import StoreGone, results_location
from weft_core.lifecycle.states import Desired, JobState
from weft_core.objects import results_prefix
from weft_core.store import registry
from weft_core.store.backups import may_delete
from weft_core.store.jobs import record_registration
from weft_core.store.models import Job, Model, ModelPromotion, ModelVersion, User
from weft_core.store.registry import InUse, UnknownModel
from weft_core.store.scope import Scope
from weft_core.sweeps.promoting import may_go_on

_MOST = 100
_MOST_METRICS = 30


@contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except UnknownModel as error:
        raise Problem(NOT_FOUND, str(error)) from error
    except InUse as error:
        raise Problem(CONFLICT, str(error)) from error
    except StoreGone as error:
        raise Problem(RESULTS_GONE, str(error)) from error


# --- reading -----------------------------------------------------------------------------------------------------


def list_models(scope: Scope, text: str, limit: int, cursor: str | None) -> ModelPage:
    """A page of the project's models, by name."""
    query = scope.select(Model)
    if text:
        query = query.where(Model.name.icontains(text, autoescape=True))
    if cursor:
        query = query.where(Model.name > decode(cursor, 1)[0])
    rows = scope.all(query.order_by(Model.name).limit(limit + 1))
    page = rows[:limit]
    return ModelPage(models=_model_views(scope, page), next_cursor=encode(page[-1].name) if len(rows) > limit else None)


def show_model(scope: Scope, name: str) -> ModelDetail:
    with _problems():
        model = registry.find_model(scope, name)
    query = scope.select(ModelPromotion, ModelPromotion.model_id == model.id)
    moves = scope.all(query.order_by(ModelPromotion.id.desc()).limit(_MOST))
    users = _users(scope, (move.user_id for move in moves))
    [view] = _model_views(scope, [model])
    promotions = [
        PromotionView(stage=move.stage, version=move.number, user=users[move.user_id], at=move.created_at)
        for move in moves
    ]
    return ModelDetail(**view.model_dump(), promotions=promotions)


def list_versions(scope: Scope, name: str, limit: int, cursor: str | None) -> VersionPage:
    """A page of a model's versions, newest first."""
    with _problems():
        model = registry.find_model(scope, name)
    query = scope.select(ModelVersion, ModelVersion.model_id == model.id)
    if cursor:
        [number] = decode(cursor, 1)
        if not number.isdigit() or len(number) > 9:
            raise invalid(
                "query.cursor", "not a cursor that this API gave", accepted="`next_cursor` of the page before"
            )
        query = query.where(ModelVersion.number < int(number))
    rows = scope.all(query.order_by(ModelVersion.number.desc()).limit(limit + 1))
    page = rows[:limit]
    return VersionPage(
        versions=_version_views(scope, model, page),
        next_cursor=encode(str(page[-1].number)) if len(rows) > limit else None,
    )


def show_version(scope: Scope, name: str, version: str) -> VersionDetail:
    model, row = _find(scope, name, version)
    [view] = _version_views(scope, model, [row])
    born = scope.select(ModelVersion, ModelVersion.parent_id == row.id).order_by(ModelVersion.created_at)
    children = scope.all(born.limit(_MOST))
    names = model_names(scope, (child.model_id for child in children))
    return VersionDetail(
        **view.model_dump(),
        lineage=row.lineage,
        children=[f"{names[child.model_id]}@{child.number}" for child in children],
    )


def find_files(context: Context, scope: Scope, name: str, version: str) -> VersionFiles:
    """Where a version's objects are. Raises Problem (not_found, results_gone)."""
    model, row = _find(scope, name, version)
    with _problems():
        return version_files(context, scope, model, row)


def _find(scope: Scope, name: str, version: str, *, lock: bool = False) -> tuple[Model, ModelVersion]:
    with _problems():
        model = registry.find_model(scope, name, lock=lock)
        return model, registry.find_version(scope, model, version)


def _model_views(scope: Scope, models: Sequence[Model]) -> list[ModelView]:
    ids = [model.id for model in models]
    counted = (
        select(ModelVersion.model_id, func.count(), func.max(ModelVersion.number))
        .where(ModelVersion.project_id == scope.project_id, ModelVersion.model_id.in_(ids))
        .group_by(ModelVersion.model_id)
    )
    numbers = {model_id: (count, highest) for model_id, count, highest in scope.session.execute(counted)}
    newest = (
        scope.select(ModelPromotion, ModelPromotion.model_id.in_(ids))
        .ext(distinct_on(ModelPromotion.model_id, ModelPromotion.stage))
        .order_by(ModelPromotion.model_id, ModelPromotion.stage, ModelPromotion.id.desc())
    )
    stages: dict[str, dict[str, int]] = defaultdict(dict)
    for row in scope.all(newest):
        if row.number is not None:
            stages[row.model_id][row.stage] = row.number
    return [
        ModelView(
            name=model.name,
            latest=numbers.get(model.id, (0, None))[1],
            versions=numbers.get(model.id, (0, None))[0],
            stages=stages[model.id],
            created_at=model.created_at,
            updated_at=model.updated_at,
        )
        for model in models
    ]


def _version_views(scope: Scope, model: Model, rows: Sequence[ModelVersion]) -> list[VersionView]:
    at: dict[int, list[str]] = defaultdict(list)
    for stage, number in sorted(registry.stages(scope, model).items()):
        at[number].append(stage)
    users = _users(scope, (row.user_id for row in rows))
    return [
        VersionView(
            model=model.name,
            version=row.number,
            reference=f"{model.name}@{row.number}",
            stages=at[row.number],
            job=row.job_id,
            user=users[row.user_id],
            parent=_parent(row),
            files=FilesSummary(**row.files) if row.files else None,
            place=_place(row),
            created_at=row.created_at,
            job_name=(row.lineage.get("job") or {}).get("name", ""),
            description=(row.lineage.get("manifest") or {}).get("description") or "",
            notes=row.notes,
            metrics=_metrics(row),
        )
        for row in rows
    ]


def _metrics(row: ModelVersion) -> dict[str, VersionMetric]:
    known = sorted((row.lineage.get("metrics") or {}).items())[:_MOST_METRICS]
    return {
        name: VersionMetric(last=found.get("last"), min=found.get("min"), max=found.get("max"))
        for name, found in known
        if isinstance(found, dict)
    }


def _parent(row: ModelVersion) -> str | None:
    parent = row.lineage.get("parent") or {}
    return f"{parent['model']}@{parent['version']}" if parent.get("model") else None


def _place(row: ModelVersion) -> str | None:
    """A place as `weft data get` takes it, or with the endpoint of a manifest's own connection."""
    if row.container is None:
        return None
    return f"{row.datastore or row.endpoint}:{row.container}/{row.prefix}/"


def _users(scope: Scope, ids: Iterable[str]) -> dict[str, str]:
    return dict(scope.session.execute(select(User.id, User.name).where(User.id.in_(set(ids)))).all())


# --- changing ----------------------------------------------------------------------------------------------------


def register_job(context: Context, who: Principal, name: str, job_id: str, once: Once) -> tuple[VersionView, bool]:
    """Make a job's results a version, after the fact. Returns it and whether it is new.

    Raises:
        Problem: not_found; conflict (the job has not COMPLETED); results_gone.
        StoreError: the results can't be listed now.
    """
    with context.database.transaction() as session:
        scope = who.scope(session)
        once.seen(scope)
        job = _completed(scope, find_job(scope, job_id))
        known = any(reference.startswith(f"{name}@") for reference in registered_as(scope, job))
        files = None if known else _results(context, scope, job)
    found = _summary(context, files) if files else None
    with context.database.transaction() as session:
        scope = who.scope(session)
        job = _completed(scope, find_job(scope, job_id, lock=True))
        model, version, new = registry.register(session, job, name, user_id=who.user_id, files=found)
        once.claim(scope, version.id)
        if new:
            record_registration(session, job, model, version, who.user_id)
        session.flush()
        session.refresh(version)
        [view] = _version_views(scope, model, [version])
    if new:
        context.wake.changed(job_id)
    return view, new


def _completed(scope: Scope, job: Job) -> Job:
    if job.desired == Desired.DELETED:
        raise Problem(CONFLICT, "the job is being deleted")
    if job.state != JobState.COMPLETED:
        raise Problem(CONFLICT, f"the job is {job.state}: only the results of a COMPLETED job can be registered")
    if (sweep := may_go_on(scope, job)) is not None:
        message = f"the job is a trial of {sweep} and may go on to its next rung: register it when the sweep has ended"
        raise Problem(CONFLICT, message)
    return job


def _results(context: Context, scope: Scope, job: Job) -> VersionFiles:
    try:
        location = results_location(scope.session, context.box, job)
    except StoreGone as error:
        raise Problem(RESULTS_GONE, f"the results can't be reached any more: {error}") from error
    prefix = f"{location.prefix}/" if location else results_prefix(job.project_id, job.id)
    return VersionFiles(f"job {job.id}", location, prefix, None)


def _summary(context: Context, files: VersionFiles) -> dict[str, Any]:
    _, found = open_listing(context, files)
    return registry.summary((info.key.removeprefix(files.prefix), info.size) for info in found)


def edit_version(scope: Scope, name: str, version: str, notes: str) -> VersionView:
    """Replace the notes of a version. Raises Problem (not_found)."""
    model, row = _find(scope, name, version, lock=True)
    row.notes = notes
    scope.session.flush()
    return _version_views(scope, model, [row])[0]


def promote(scope: Scope, who: Principal, name: str, stage: str, version: str | None) -> ModelView:
    """Bring a stage to a version; None takes it away. Raises Problem (not_found, invalid_request)."""
    with _problems():
        model = registry.find_model(scope, name, lock=True)
        if version is None and stage not in registry.stages(scope, model):
            raise UnknownModel(f"model {name!r} has no stage {stage[:100]!r}")
        number = None if version is None else registry.find_version(scope, model, version).number
    try:
        registry.promote(scope, model, stage, number, who.user_id)
    except ValueError as error:
        raise invalid("path.stage", str(error), found=stage[:100], accepted="production") from None
    scope.session.flush()
    scope.session.refresh(model)
    return _model_views(scope, [model])[0]


def delete(context: Context, who: Principal, name: str, version: str | None = None) -> None:
    """Remove a version, or a model with all of its versions. Objects in a user's own store stay there; in the
    installation's own store they go once no job and no other version has them.

    Raises:
        Problem: not_found; conflict: a stage or a living job stands on it.
        StoreError: the objects can't be deleted now; the versions are still there.
        BackupRuns: the same, while a backup is being made.
    """
    if version is not None and not version.isdigit():
        raise invalid("path.version", "only a number can be deleted", found=version[:63], accepted="3")
    with context.database.transaction() as session:
        scope = who.scope(session)
        doomed = _deletable(scope, name, version)
        prefixes = [row.prefix for row in doomed if row.container is None and _is_last(scope, row)]
    with context.database.transaction() as session:
        scope = who.scope(session)
        may_delete(session)
        # First the objects: if they can't be deleted, or this process dies, the same request does the rest.
        for prefix in prefixes:
            context.objects.delete([info.key for info in context.objects.objects(f"{prefix}/")])
        for row in _deletable(scope, name, version):
            registry.delete_version(scope, row)
        if version is None:
            scope.session.delete(registry.find_model(scope, name))


def _deletable(scope: Scope, name: str, version: str | None) -> list[ModelVersion]:
    with _problems():
        model = registry.find_model(scope, name, lock=True)
        rows = (
            scope.all(scope.select(ModelVersion, ModelVersion.model_id == model.id))
            if version is None
            else [registry.find_version(scope, model, version)]
        )
        for row in rows:
            registry.check_deletable(scope, model, row)
    return rows


def _is_last(scope: Scope, row: ModelVersion) -> bool:
    """Whether nothing else has these results: their job is gone, and no other version is of it."""
    if scope.find(Job, Job.id == row.job_id) is not None:
        return False
    others = select(func.count()).where(ModelVersion.job_id == row.job_id, ModelVersion.id != row.id)
    return not scope.session.scalar(others)
