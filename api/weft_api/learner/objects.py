"""Objects of a learner in the installation's own store: presigned URLs under its job's prefixes, and those of
its inputs."""

from __future__ import annotations

from sqlalchemy.orm import Session

from weft_api.access.attempts import AttemptToken, granted_learner, open_attempt, present_learner
from weft_api.context import Context
from weft_api.http.problems import NO_GRANT, Problem, invalid
from weft_api.learner.schemas import ObjectEntry, ObjectsAnswer, ObjectsCall
from weft_core.objects import Objects, StoreError, checkpoints_prefix, exit_key, profiles_prefix, results_prefix
from weft_core.store.checkpoints import shared_source
from weft_core.store.models import Attempt, Job, ModelVersion
from weft_core.store.scope import Scope

_MULTIPART = ("begin", "parts", "complete", "abort")
_READ_ONLY = {"pretrained": "a pretrained model", "shared": "another job's checkpoint"}
_URL_SECONDS = 900
"""Short: an agent that has lost its attempt keeps its URLs for as long."""


def objects(context: Context, token: AttemptToken, call: ObjectsCall) -> ObjectsAnswer:
    """Raises Problem (stale_attempt, no_grant, invalid_request) and StoreError."""
    for key in call.keys:
        # A prefix to list may end with a slash.
        _check_key(key.removesuffix("/") if call.op == "list" else key)
    with context.database.transaction() as session:
        attempt = open_attempt(session, token)
        # A lost learner may still report how it ended, and write nothing else.
        find = granted_learner if call.space == "exit" else present_learner
        learner = find(session, attempt, call.rank, call.instance, lock=False)
        if call.space in _READ_ONLY and call.op not in ("get", "list"):
            raise invalid("op", f"{_READ_ONLY[call.space]} is read only", found=call.op, accepted="get, list")
        if call.space == "results" and call.op not in ("get", "list") and learner.storing_at is None:
            raise Problem(NO_GRANT, "results are stored only with a storing grant: POST /learner/storing first")
        prefix = _prefix(session, attempt, call)
    store = context.objects
    if call.op in _MULTIPART:
        return _multipart(store, prefix, call)
    if call.op == "put":
        return ObjectsAnswer(urls={key: store.presign_put(prefix + key, _URL_SECONDS) for key in call.keys})
    if call.op == "get":
        return ObjectsAnswer(urls={key: store.presign_get(prefix + key, _URL_SECONDS) for key in call.keys})
    if call.op == "delete":
        store.delete(prefix + key for key in call.keys)
        return ObjectsAnswer(objects=[])
    objects = (info for wanted in call.keys or [""] for info in store.objects(prefix + wanted))
    return ObjectsAnswer(objects=[ObjectEntry(key=info.key.removeprefix(prefix), size=info.size) for info in objects])


def _multipart(store: Objects, prefix: str, call: ObjectsCall) -> ObjectsAnswer:
    if len(call.keys) != 1:
        raise invalid("keys", "a multipart upload is of one key", accepted='["model.pt"]')
    key = prefix + call.keys[0]
    if call.op == "begin":
        return ObjectsAnswer(upload=store.create_multipart(key))
    if call.upload is None:
        raise invalid("upload", "missing", accepted="what op begin has answered")
    if call.op == "parts":
        urls = {str(number): store.presign_part(key, call.upload, number, _URL_SECONDS) for number in call.numbers}
        return ObjectsAnswer(urls=urls)
    if call.op == "complete":
        if not call.etags:
            raise invalid("etags", "missing", accepted="the ETags of all parts, in order")
        _complete(store, key, call)
    else:
        store.abort_multipart(key, call.upload)
    return ObjectsAnswer(upload=call.upload)


def _complete(store: Objects, key: str, call: ObjectsCall) -> None:
    try:
        store.complete_multipart(key, call.upload or "", call.etags)
    except StoreError as error:
        if error.kind == "unreachable":
            raise
        # Asked again, because the first answer was lost: then the upload is gone, and the object there.
        if error.kind != "not_found" or store.head(key) is None:
            raise invalid("etags", f"the upload can't be completed: {error}") from error


def _check_key(key: str) -> None:
    parts = key.split("/")
    if not key.isprintable() or "\\" in key or any(part in ("", ".", "..") for part in parts):
        raise invalid("keys", "not a relative path", found=key[:100], accepted="model.pt, or logs/tb/events")


def _prefix(session: Session, attempt: Attempt, call: ObjectsCall) -> str:
    if call.space == "pretrained":
        return _model_prefix(session, attempt)
    if call.space == "shared":
        return _shared_prefix(session, attempt)
    if call.space == "results":
        return results_prefix(attempt.project_id, attempt.job_id)
    if call.space == "checkpoints":
        return checkpoints_prefix(attempt.project_id, attempt.job_id)
    if call.space == "profiles":
        return profiles_prefix(attempt.project_id, attempt.job_id)
    if call.op not in ("put", "get") or call.keys != ["exit.json"]:
        raise invalid("keys", "space 'exit' holds exit.json alone", accepted='op put or get, keys ["exit.json"]')
    return exit_key(attempt.project_id, attempt.job_id, attempt.n, call.rank).removesuffix("exit.json")


def _shared_prefix(session: Session, attempt: Attempt) -> str:
    """The prefix of the checkpoints of the job that this job begins with."""
    job = Scope(session, attempt.project_id).find(Job, Job.id == attempt.job_id)
    source = shared_source(job) if job else None
    if source is None:
        raise invalid("space", "the job does not begin with another job's stored checkpoint", found="shared")
    return checkpoints_prefix(attempt.project_id, source)


def _model_prefix(session: Session, attempt: Attempt) -> str:
    """The prefix of the version that the job starts from, if the installation's own store has it."""
    scope = Scope(session, attempt.project_id)
    job = scope.find(Job, Job.id == attempt.job_id)
    row = scope.find(ModelVersion, ModelVersion.id == job.pretrained_id) if job and job.pretrained_id else None
    if row is None or row.container is not None:
        raise invalid("space", "no pretrained model of this job is in the installation's own store", found="pretrained")
    return row.prefix + "/"
