"""The registry of models: how a job's results become a version, and what a reference such as ``mnist@3`` means.

Versions are immutable: they are added and deleted, and only their notes change. Stages (``mnist@production``) move,
each move a row of its own. Everything here runs in the caller's transaction; the model's row is the lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.orm import Session

from weft_core.catalogue import Catalogue
from weft_core.ids import new_id
from weft_core.lifecycle.states import ACTIVE, JobState
from weft_core.objects import results_prefix
from weft_core.store.models import Attempt, Job, JobMetric, Model, ModelPromotion, ModelVersion, Overlay, Secret
from weft_core.store.promotions import note_promotion
from weft_core.store.scope import Scope

LATEST = "latest"
"""``NAME@latest``: the version with the highest number. No stage can have this name."""
STAGE = r"[a-z][a-z0-9_-]{0,62}"
"""The form of a stage's name; a number is a version."""


class UnknownModel(Exception):
    """No such model, version or stage; the message says which, and what there is."""


class InUse(Exception):
    """A version can't be deleted because something uses it; the message says what."""


def summary(listing: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """The identity of a set of objects: their number, their bytes and the SHA-256 of their keys (relative to their
    prefix) and sizes, a line ``key<TAB>size`` for each in the order of the keys' bytes. The learner's agent makes the
    same (``weft_trainer.stores.summary``)."""
    ordered = sorted(listing, key=lambda entry: entry[0].encode())
    digest = hashlib.sha256()
    for key, size in ordered:
        digest.update(f"{key}\t{size}\n".encode())
    return {"files": len(ordered), "bytes": sum(size for _, size in ordered), "sha256": digest.hexdigest()}


# --- adding versions ---------------------------------------------------------------------------------------------


def registered_name(manifest: Mapping[str, Any]) -> str | None:
    """The model that ``training_results.model`` of a canonical manifest names."""
    for store in manifest.get("data_stores", ()):
        results = store.get("training_results") or {}
        if "model" in results:
            return str(results["model"])
    return None


def register(
    session: Session,
    job: Job,
    name: str,
    *,
    user_id: str | None = None,
    files: Mapping[str, Any] | None = None,
) -> tuple[Model, ModelVersion, bool]:
    """Make the job's results the next version of the model ``name``; the model is made if it is new.

    Args:
        session: the transaction in which the job became, or is known to be, COMPLETED; it holds the job's row.
        job: whose results.
        name: of the model, in the job's project.
        user_id: who registers; default: who submitted the job.
        files: :func:`summary` of the results, where the attempt did not report it.

    Returns:
        The model, the version, and whether it is new: results that are a version of it already stay that one.
    """
    scope = Scope(session, job.project_id)
    user_id = user_id or job.user_id
    model = _model(scope, name)
    known = scope.find(ModelVersion, ModelVersion.model_id == model.id, ModelVersion.job_id == job.id)
    if known is not None:
        return model, known, False
    model.counter += 1
    model.updated_at = func.now()
    attempt = scope.find(Attempt, Attempt.job_id == job.id, Attempt.n == job.attempt)
    version_id = new_id("mv")
    version = ModelVersion(
        id=version_id,
        model_id=model.id,
        number=model.counter,
        job_id=job.id,
        user_id=user_id,
        parent_id=job.pretrained_id,
        files=(attempt.outputs if attempt else None) or files,
        lineage=_lineage(scope, job, attempt),
        **_place(scope, job, version_id),
    )
    scope.add(version)
    session.flush()
    return model, version, True


def _model(scope: Scope, name: str) -> Model:
    """The model of this name, made if need be, its row locked."""
    row = insert(Model).values(id=new_id("mdl"), project_id=scope.project_id, name=name)
    while (model := scope.find(Model, Model.name == name, lock=True)) is None:
        scope.session.execute(row.on_conflict_do_nothing(index_elements=["project_id", "name"]))
    return model


def _place(scope: Scope, job: Job, version_id: str) -> dict[str, Any]:
    """The location of the results. The job's credentials go with the job, so those of the manifest's own connection are
    kept a second time, still encrypted."""
    for store in job.manifest.get("data_stores", ()):
        results = store.get("training_results") or {}
        if not results.get("container"):
            continue
        prefix = "/".join(part for part in (results.get("prefix", ""), job.id) if part)
        place = {"container": results["container"], "prefix": prefix}
        if store.get("datastore"):
            return place | {"datastore": store["datastore"]}
        connection = store.get("connection") or {}
        place |= {"endpoint": connection.get("auth_url"), "region": connection.get("region")}
        kept = scope.find(Secret, Secret.name == f"{job.id}/{store['id']}")
        if kept is not None:
            copy = Secret(id=new_id("sec"), name=f"model/{version_id}", job_id=None, ciphertext=kept.ciphertext)
            scope.add(copy)
            scope.session.flush()
            place["secret_id"] = copy.id
        return place
    return {"prefix": results_prefix(job.project_id, job.id).rstrip("/")}


def _lineage(scope: Scope, job: Job, attempt: Attempt | None) -> dict[str, Any]:
    """How these results came to be."""
    inputs = (attempt.inputs if attempt else None) or {}
    image = job.manifest.get("framework", {}).get("image", "")
    known = Catalogue.load().get(image)
    ended = scope.session.scalar(select(func.coalesce(Job.ended_at, func.now())).where(Job.id == job.id))
    return {
        "job": {"id": job.id, "name": job.name, "rerun_of": job.rerun_of},
        "code_sha256": job.code_sha256,
        "repo": job.manifest.get("repo"),
        "data": inputs.get("data"),
        "pretrained": inputs.get("pretrained"),
        "parent": _parent(scope, job),
        "image": {"reference": image, "digest": known.digest if known else None},
        "packages": _packages(scope, job),
        "manifest": job.manifest,
        "metrics": _final_metrics(scope, job),
        "run": {
            "engine": job.engine,
            "learners": job.learners,
            "attempt": job.attempt,
            "failures": job.failures,
            "exit_code": attempt.exit_code if attempt else None,
            "submitted_at": _iso(job.created_at),
            "started_at": _iso(job.started_at),
            "ended_at": _iso(ended),
            "seconds": (ended - job.started_at).total_seconds() if ended and job.started_at else None,
        },
    }


def _packages(scope: Scope, job: Job) -> dict[str, Any] | None:
    """The packages besides those of the image."""
    overlay = scope.find(Overlay, Overlay.id == job.overlay_id) if job.overlay_id else None
    return {"lock": overlay.lock, "sha256": overlay.sha256} if overlay is not None else None


def _final_metrics(scope: Scope, job: Job) -> dict[str, Any]:
    rows = scope.all(scope.select(JobMetric, JobMetric.job_id == job.id).order_by(JobMetric.name))
    return {
        metric.name: {"last": metric.last, "min": metric.min, "max": metric.max, "step": metric.step} for metric in rows
    }


def _parent(scope: Scope, job: Job) -> dict[str, Any] | None:
    """The version that the job started from, in words that outlive it."""
    if job.pretrained_id is None:
        return None
    row = scope.find(ModelVersion, ModelVersion.id == job.pretrained_id)
    model = scope.find(Model, Model.id == row.model_id) if row else None
    if row is None or model is None:
        return {"id": job.pretrained_id, "model": None, "version": None}
    return {"id": row.id, "model": model.name, "version": row.number}


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


# --- what a reference means --------------------------------------------------------------------------------------


def find_model(scope: Scope, name: str, *, lock: bool = False) -> Model:
    """Raises UnknownModel."""
    model = scope.find(Model, Model.name == name, lock=lock) if len(name) <= 100 and name.isascii() else None
    if model is None:
        raise UnknownModel(f"no model {name[:100]!r} in this project")
    return model


def find_version(scope: Scope, model: Model, version: str) -> ModelVersion:
    """The version of a number, of a stage, or the ``latest``.

    Raises:
        UnknownModel: there is none.
    """
    query = scope.select(ModelVersion, ModelVersion.model_id == model.id)
    if version == LATEST:
        newest = scope.session.scalars(query.order_by(ModelVersion.number.desc()).limit(1)).one_or_none()
        if newest is None:
            raise UnknownModel(f"model {model.name!r} has no version")
        return newest
    if version.isascii() and version.isdigit():
        number: int | None = int(version) if len(version) < 10 else -1
    else:
        number = stages(scope, model).get(version)
        if number is None:
            raise UnknownModel(f"model {model.name!r} has no stage {version[:100]!r}: {_there_is(scope, model)}")
    found = scope.find(ModelVersion, ModelVersion.model_id == model.id, ModelVersion.number == number)
    if found is None:
        raise UnknownModel(f"model {model.name!r} has no version {version[:20]}: {_there_is(scope, model)}")
    return found


def _there_is(scope: Scope, model: Model) -> str:
    numbers = select(func.max(ModelVersion.number)).where(ModelVersion.model_id == model.id)
    highest = scope.session.scalar(numbers)
    known = [f"{stage} ({number})" for stage, number in sorted(stages(scope, model).items())]
    words = "it has no version" if highest is None else f"its latest is {highest}"
    return words + (f", its stages are {', '.join(known)}" if known else "")


def stages(scope: Scope, model: Model) -> dict[str, int]:
    """Stage → the number of the version that it is at."""
    newest = (
        scope.select(ModelPromotion, ModelPromotion.model_id == model.id)
        .ext(distinct_on(ModelPromotion.stage))
        .order_by(ModelPromotion.stage, ModelPromotion.id.desc())
    )
    return {row.stage: row.number for row in scope.all(newest) if row.number is not None}


def promote(scope: Scope, model: Model, stage: str, number: int | None, user_id: str) -> bool:
    """Bring a stage to a version, or with None take it away; the model's row is locked by the caller. False: it was
    there already. Schedules that wait for promotions of the stage start their jobs.

    Raises:
        ValueError: no name for a stage.
    """
    if not re.fullmatch(STAGE, stage) or stage == LATEST:
        raise ValueError(
            "a stage is a lower-case letter, then lower-case letters, digits, '_' and '-', and not 'latest', which is "
            "always the highest version"
        )
    if stages(scope, model).get(stage) == number:
        return False
    promotion = ModelPromotion(model_id=model.id, stage=stage, number=number, user_id=user_id)
    scope.add(promotion)
    model.updated_at = func.now()
    scope.session.flush()
    note_promotion(scope, model, promotion)
    return True


# --- deleting ----------------------------------------------------------------------------------------------------


def check_deletable(scope: Scope, model: Model, version: ModelVersion) -> None:
    """Raises InUse when a stage is at the version, or a job that has not ended starts from it."""
    name = f"{model.name}@{version.number}"
    held = sorted(stage for stage, number in stages(scope, model).items() if number == version.number)
    if held:
        raise InUse(f"{name} is {model.name}@{held[0]}: promote another version first, or take the stage away")
    living = [state.value for state in (*ACTIVE, JobState.QUEUED)]
    query = scope.select(Job, Job.pretrained_id == version.id, Job.state.in_(living)).order_by(Job.id).limit(1)
    for job in scope.all(query):
        raise InUse(f"{name} is what job {job.id} ({job.name}, {job.state}) starts from")


def delete_version(scope: Scope, version: ModelVersion) -> None:
    """Remove the row and the credentials that were kept for it; its objects are the caller's affair."""
    secret = scope.find(Secret, Secret.id == version.secret_id) if version.secret_id else None
    scope.session.delete(version)
    scope.session.flush()
    if secret is not None:
        scope.session.delete(secret)


def keeps_results(session: Session, job_id: str) -> bool:
    """Whether results in the installation's own store are a version's, so that they outlive their job."""
    query = select(ModelVersion.id).where(ModelVersion.job_id == job_id, ModelVersion.container.is_(None)).limit(1)
    return session.scalars(query).one_or_none() is not None
