"""Artifacts: those of a job's run are files of the job's results, the others are in the installation's own store.

An address begins with the id of the run (or of a logged model without a run): ``mlflow-artifacts:/job-…/plots/a.png``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from weft_api.http.problems import FORBIDDEN, NOT_FOUND, RESULTS_GONE, TOO_LARGE, Problem
from weft_api.http.spool import Spooled
from weft_api.mlflow.calls import Call
from weft_api.mlflow.errors import no_run
from weft_api.mlflow.runs import artifact_uri, find_run
from weft_api.mlflow.values import refused
from weft_api.storage.clients import open_store, users_store
from weft_api.storage.locations import StoreGone, results_location
from weft_core.objects import Bucket, ObjectInfo, mlflow_prefix, results_prefix
from weft_core.store.models import Job, MlflowModel, MlflowRun

_MOST_LISTED = 10_000
_RESERVED = "weft-manifest"
"""The files that say which results are complete."""


@dataclass(frozen=True)
class Folder:
    """The artifacts of one run, with the path in it that is asked for."""

    bucket: Bucket
    prefix: str
    path: str
    of_job: bool
    counter: MlflowRun | MlflowModel | None
    """The row that counts the bytes; locked if the call writes."""


def _checked(path: str) -> str:
    parts = path.split("/") if path else []
    if not path.isprintable() or "\\" in path or len(path) > 900 or any(part in ("", ".", "..") for part in parts):
        raise refused(f"Invalid path: {path[:200]!r}")
    return path


def open_folder(call: Call, address: str, *, write: bool = False) -> Folder:
    """The folder of an address. Raises Problem."""
    run_id, _, path = address.strip("/").partition("/")
    _checked(path)
    if run_id.startswith("m-"):
        return _of_model(call, run_id, path, write)
    run = find_run(call, run_id, write=write)
    if run.job is None:
        return Folder(call.context.objects, mlflow_prefix(call.scope.project_id, run_id), path, False, run.row)
    bucket, prefix = _results(call, run.job)
    counter = run.row
    if not run.is_job:
        prefix += f"mlflow/{run_id}/"
        counter = find_run(call, run.job.id, write=write).row
    return Folder(bucket, prefix, path, True, counter)


def _of_model(call: Call, model_id: str, path: str, write: bool) -> Folder:
    model = call.scope.find(MlflowModel, MlflowModel.id == model_id, lock=write)
    if model is None or model.job_id or call.learner:
        raise no_run(model_id)
    return Folder(call.context.objects, mlflow_prefix(call.scope.project_id, model_id), path, False, model)


def _results(call: Call, job: Job) -> tuple[Bucket, str]:
    try:
        location = results_location(call.session, call.context.box, job)
    except StoreGone as error:
        raise Problem(RESULTS_GONE, f"the results can't be reached any more: {error}") from error
    if location is None:
        return call.context.objects, results_prefix(job.project_id, job.id)
    return open_store(call.context, location), location.prefix + "/"


def reserve(call: Call, address: str, size: int) -> Folder:
    """The folder that an upload of this size goes to. The bytes stay counted even if the upload fails.

    Raises:
        Problem: too_large beyond the limit of the run, and others.
    """
    if call.learner and not call.learner.open:
        raise Problem(FORBIDDEN, "the attempt has ended: its learners can store no more files")
    folder = open_folder(call, address, write=True)
    if not folder.path or (folder.of_job and folder.path.startswith(_RESERVED)):
        raise refused(f"Invalid path: {folder.path!r} is no name for an artifact")
    assert folder.counter is not None
    limit = call.context.settings.limits.mlflow_artifact_bytes
    if folder.counter.artifact_bytes + size > limit:
        raise Problem(
            TOO_LARGE, f"the artifacts of this run would exceed {limit:,} bytes (limits.mlflow_artifact_bytes)"
        )
    folder.counter.artifact_bytes += size
    return folder


def put(folder: Folder, file: Spooled) -> None:
    with users_store():
        folder.bucket.put_file(folder.prefix + folder.path, file.path)


def read(folder: Folder) -> tuple[ObjectInfo, Iterator[bytes]]:
    """A file in pieces. Raises Problem not_found."""
    with users_store():
        info = folder.bucket.head(folder.prefix + folder.path) if folder.path else None
        if info is None:
            raise Problem(NOT_FOUND, f"No such artifact: '{folder.path}'")
        return info, folder.bucket.get_stream(info.key)


def delete(folder: Folder) -> None:
    """Raises Problem forbidden for files of a job."""
    if folder.of_job:
        raise Problem(FORBIDDEN, "the files of a job can't be deleted here; `weft delete` removes a job with its files")
    with users_store():
        under = folder.prefix + folder.path
        found = folder.bucket.objects(under)
        folder.bucket.delete(info.key for info in found if info.key == under or info.key.startswith(f"{under}/"))


def entries(folder: Folder) -> list[dict[str, Any]]:
    """The files and folders right below the path, with paths from there."""
    prefix = folder.prefix + (f"{folder.path}/" if folder.path else "")
    found: dict[str, dict[str, Any]] = {}
    with users_store():
        for info in islice(folder.bucket.objects(prefix), _MOST_LISTED):
            name, slash, _ = info.key.removeprefix(prefix).partition("/")
            if name:
                found[name] = {"path": name, "is_dir": bool(slash)} | ({} if slash else {"file_size": info.size})
    return [found[name] for name in sorted(found)]


def list_of_run(folder: Folder, run_id: str) -> dict[str, Any]:
    """The answer to artifacts/list: paths from the run's folder on."""
    below = f"{folder.path}/" if folder.path else ""
    files = [{**entry, "path": below + entry["path"]} for entry in entries(folder)]
    return {"root_uri": artifact_uri(run_id), "files": files}
