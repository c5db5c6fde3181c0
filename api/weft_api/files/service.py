"""The results of a job, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.context import Context
from weft_api.http.problems import NO_RESULTS_YET, NOT_FOUND, RESULTS_GONE, Problem, not_found
from weft_api.storage.clients import open_store, users_store
from weft_api.storage.file_lists import FileList, FileView
from weft_api.storage.locations import StoreGone, results_location
from weft_api.streaming.zipstream import Entry, stream_zip
from weft_core.lifecycle.states import TERMINAL
from weft_core.manifest import Repository
from weft_core.objects import Bucket, ObjectInfo, code_key, results_prefix

_MOST_LISTED = 10_000
NO_LONGER_KEPT = "the project no longer keeps them (`weft projects retention`)"


@dataclass(frozen=True)
class Results:
    """A job's results: the container and the prefix that they are under."""

    bucket: Bucket
    prefix: str
    state: str
    removed: str | None = None
    """When they were removed, as the project no longer keeps them; of results in the installation's own store."""

    def objects(self) -> Iterator[ObjectInfo]:
        """Without objects that only name a folder."""
        return (info for info in self.bucket.objects(self.prefix) if not info.key.endswith("/"))


def open_results(context: Context, who: Principal, job_id: str) -> Results:
    """Raises Problem (not_found, results_gone)."""
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id)
        try:
            location = results_location(session, context.box, job)
        except StoreGone as error:
            raise Problem(RESULTS_GONE, f"the results can't be reached any more: {error}") from error
    if location is None:
        removed = (job.removed or {}).get("results", {}).get("at")
        return Results(context.objects, results_prefix(job.project_id, job.id), job.state, removed)
    with users_store():
        return Results(open_store(context, location), location.prefix + "/", job.state)


def list_files(results: Results) -> FileList:
    with users_store():
        found = list(islice(results.objects(), _MOST_LISTED + 1))
    files = [
        FileView(path=info.key.removeprefix(results.prefix), size=info.size, modified=info.modified)
        for info in found[:_MOST_LISTED]
    ]
    return FileList(files=files, complete=len(found) <= _MOST_LISTED)


def read_file(results: Results, path: str) -> tuple[ObjectInfo, Iterator[bytes]]:
    """A file, in pieces. Raises Problem not_found."""
    with users_store():
        info = _head(results, path)
        return info, results.bucket.get_stream(info.key)


def read_beginning(results: Results, path: str, most: int) -> tuple[int, bytes]:
    """A file's size, and its first bytes. Raises Problem not_found."""
    with users_store():
        info = _head(results, path)
        return info.size, results.bucket.get_range(info.key, 0, most) if info.size else b""


def _head(results: Results, path: str) -> ObjectInfo:
    if not path.isprintable() or any(part in ("", ".", "..") for part in path.split("/")):
        raise not_found("file", path[:200])
    info = results.bucket.head(results.prefix + path)
    if info is None:
        raise not_found("file", path)
    return info


def zip_results(results: Results) -> Iterator[bytes]:
    """The results as a zip, made while it is sent.

    Raises:
        Problem: no_results_yet or results_gone; both before the first byte.
    """
    if results.state not in TERMINAL:
        raise Problem(NO_RESULTS_YET, f"the job is {results.state}: its results come at its end")
    with users_store():
        objects = results.objects()
        first = next(objects, None)
    if first is None:
        if results.removed:
            raise Problem(RESULTS_GONE, f"the results were removed on {results.removed[:10]}: {NO_LONGER_KEPT}")
        where = f"{results.bucket.container}/{results.prefix}"
        raise Problem(RESULTS_GONE, f"the job is {results.state} and nothing is at {where}")
    entries = (
        Entry(info.key.removeprefix(results.prefix), info.modified, lambda key=info.key: results.bucket.get_stream(key))  # type: ignore[misc]
        for info in chain([first], objects)
    )
    return stream_zip(entries)


def read_definition(context: Context, who: Principal, job_id: str) -> tuple[ObjectInfo, Iterator[bytes]]:
    """The code bundle that a job was submitted with, in pieces. Raises Problem not_found."""
    info = find_definition(context, who, job_id)
    return info, context.objects.get_stream(info.key)


def find_definition(context: Context, who: Principal, job_id: str) -> ObjectInfo:
    """Where the code bundle of a job is. Raises Problem not_found."""
    with context.database.transaction() as session:
        job = find_job(who.scope(session), job_id)
        sha256, repository = job.code_sha256, job.manifest.get("repo")
    if repository is not None:
        raise Problem(NOT_FOUND, f"the job's code is {Repository.model_validate(repository).words}")
    if sha256 is None:
        raise Problem(NOT_FOUND, f"the job {job_id} was submitted without code")
    key = code_key(who.project_id, sha256)
    info = context.objects.head(key)
    if info is None:
        raise Problem(NOT_FOUND, f"the code bundle {sha256} is not in the store any more")
    return info
