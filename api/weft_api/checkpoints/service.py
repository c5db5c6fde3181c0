"""A job's checkpoints, wherever they are. Learners write them, and here they are only read and copied.

``weft_trainer.checkpoints.generations`` says how a store holds them: a generation lists files, whose contents are kept
by their hash."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from weft_api.access.auth import Principal
from weft_api.access.lookups import find_job
from weft_api.checkpoints.schemas import CheckpointList, CheckpointView
from weft_api.context import Context
from weft_api.http.problems import CONFLICT, RESULTS_GONE, Problem
from weft_api.storage.clients import open_store, users_store
from weft_api.storage.locations import StoreGone, checkpoints_location
from weft_core.launch import S3Location
from weft_core.objects import Bucket, StoreError, checkpoints_prefix
from weft_core.store.models import Job

_KEY = re.compile(r"(?:learner-(\d{1,6})/)?generations/([0-9-]{3,40})\.json")
_CONTENT = re.compile(r"[0-9a-f]{64}")
_AT_ONCE = 16
_TRIES = 3
"""A running job may drop old checkpoints while a checkpoint is copied."""


@dataclass(frozen=True)
class CheckpointStore:
    """Where a job's checkpoints are. ``location`` is None in the installation's own store."""

    bucket: Bucket
    prefix: str
    location: S3Location | None

    def reaches(self, other: CheckpointStore) -> bool:
        """Whether the other store can copy this store's objects by itself."""
        if self.location is None or other.location is None:
            return self.location is other.location
        mine, its = self.location, other.location
        return (mine.endpoint, mine.temporary, mine.space, mine.access_key) == (
            its.endpoint,
            its.temporary,
            its.space,
            its.access_key,
        )


@dataclass(frozen=True)
class Generation:
    """``folder`` is "" for learner 1, ``learner-<n>/`` for the others."""

    id: str
    folder: str
    document: dict[str, Any]

    @property
    def contents(self) -> set[str]:
        return {file["sha256"] for file in self.document["files"] if not file.get("link")}

    @property
    def size(self) -> int:
        return sum(int(file.get("size") or 0) for file in self.document["files"])

    @property
    def lasted(self) -> tuple[float, float] | None:
        """The time in which the folder was in this state (seconds since the epoch), if its learner reported it."""
        until = self.document.get("until")
        if until is None:
            return None
        newest = max((int(file.get("mtime_ns") or 0) for file in self.document["files"]), default=0) / 1e9
        return min(newest, float(until)), float(until)

    def overlaps(self, other: Generation) -> bool:
        """Whether both were their learners' states at some moment."""
        mine, its = self.lasted, other.lasted
        return mine is not None and its is not None and max(mine[0], its[0]) <= min(mine[1], its[1])

    @property
    def keys(self) -> list[str]:
        """The keys of all its objects; the key of its own document is the last."""
        files = [f"{self.folder}files/{content}" for content in sorted(self.contents)]
        return [*files, f"{self.folder}generations/{self.id}.json"]

    @property
    def view(self) -> CheckpointView:
        at, attempt = self.document.get("at"), self.document.get("attempt")
        job = self.document.get("job")
        return CheckpointView(
            generation=self.id,
            learner=int(self.folder[8:-1]) if self.folder else 1,
            job=job if isinstance(job, str) else None,
            attempt=attempt if isinstance(attempt, int) else None,
            at=datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else None,
            files=len(self.document["files"]),
            size=self.size,
        )


def own_checkpoint_store(context: Context, project_id: str, job_id: str) -> CheckpointStore:
    """In the installation's own store."""
    return CheckpointStore(context.objects, checkpoints_prefix(project_id, job_id), None)


def users_checkpoint_store(context: Context, location: S3Location) -> CheckpointStore:
    return CheckpointStore(open_store(context, location), location.prefix + "/", location)


def checkpoint_store(context: Context, session: Session, job: Job) -> CheckpointStore:
    """Raises Problem results_gone."""
    try:
        location = checkpoints_location(session, context.box, job)
    except StoreGone as error:
        raise Problem(RESULTS_GONE, f"the checkpoints can't be reached any more: {error}") from error
    return (
        own_checkpoint_store(context, job.project_id, job.id)
        if location is None
        else users_checkpoint_store(context, location)
    )


def list_checkpoints(context: Context, who: Principal, job_id: str) -> CheckpointList:
    with context.database.transaction() as session:
        store = checkpoint_store(context, session, find_job(who.scope(session), job_id))
    with users_store():
        found = [generation.view for row in read_generations(store).values() for generation in row]
    oldest = datetime.fromtimestamp(0, UTC)
    found.sort(key=lambda view: (view.at or oldest, view.generation, -view.learner), reverse=True)
    return CheckpointList(checkpoints=found)


def read_generations(store: CheckpointStore) -> dict[str, list[Generation]]:
    """The generations by folder, in order. Those that can't be read or that vanish are left out. Raises StoreError."""
    keys = [info.key.removeprefix(store.prefix) for info in store.bucket.objects(store.prefix)]
    found: dict[str, list[Generation]] = defaultdict(list)
    for key in sorted(keys):
        if match := _KEY.fullmatch(key):
            folder = f"learner-{match[1]}/" if match[1] else ""
            if (generation := _read(store, key, match[2], folder)) is not None:
                found[folder].append(generation)
    return dict(found)


def _read(store: CheckpointStore, key: str, generation_id: str, folder: str) -> Generation | None:
    try:
        document = json.loads(store.bucket.get(store.prefix + key))
        generation = Generation(generation_id, folder, document)
        # Anybody with write access to a user's bucket could have written this.
        right = all(_CONTENT.fullmatch(content) for content in generation.contents) and generation.size >= 0
        return generation if right and (generation.lasted is None or generation.overlaps(generation)) else None
    except StoreError as error:
        if error.kind != "not_found":
            raise
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def copy_checkpoint(
    source: CheckpointStore, target: CheckpointStore, job_id: str, wanted: str | None
) -> dict[str, Any]:
    """Copy a checkpoint of a job. From then on, the copy does not depend on the original.

    If several learners have stored checkpoints, all that may go together are copied: their newest may be of different
    moments, and the learners choose those that fit.

    Args:
        wanted: a generation's id; None: the last one.

    Returns:
        The value of ``jobs.checkpoint_of``.

    Raises:
        Problem, StoreError: there is none, or a store failed. Nothing is left in ``target`` then.
    """
    for _ in range(_TRIES):
        with users_store():
            found = read_generations(source)
        if not found:
            break
        found = found if wanted is None else _of_its_moment(found, wanted, job_id)
        try:
            with users_store():
                _copy(
                    source,
                    target,
                    [generation for row in found.values() for generation in (row if len(found) > 1 else row[-1:])],
                )
        except _Vanished:
            continue
        newest = found[min(found)][-1]
        return {
            "job": job_id,
            "generation": newest.id,
            "attempt": newest.view.attempt,
            "at": newest.document.get("at"),
            "files": sum(len(row[-1].document["files"]) for row in found.values()),
            "size": sum(row[-1].size for row in found.values()),
        }
    raise Problem(CONFLICT, f"job {job_id} has no complete checkpoint{f' {wanted}' if wanted else ''} to begin with")


def _of_its_moment(found: dict[str, list[Generation]], wanted: str, job_id: str) -> dict[str, list[Generation]]:
    """The generation with the id ``wanted``, and the generations that other learners were in at the same time. Each
    learner counts its own generations, so the id is taken to be that of the first learner that has it."""
    folder, chosen = next(
        ((folder, generation) for folder in sorted(found) for generation in found[folder] if generation.id == wanted),
        (None, None),
    )
    if folder is None or chosen is None:
        kept = ", ".join(sorted({generation.id for row in found.values() for generation in row}, reverse=True))
        raise Problem(CONFLICT, f"job {job_id} does not keep checkpoint {wanted} (any more); it keeps {kept}")
    others = {
        other: [generation for generation in found[other] if generation.overlaps(chosen)]
        for other in found
        if other != folder
    }
    behind = [str(row[-1].view.learner) for other, row in found.items() if not others.get(other, [chosen])]
    if behind:
        raise Problem(
            CONFLICT,
            f"checkpoint {wanted} of job {job_id} is not of all learners: nothing is kept of learner "
            f"{', '.join(behind)} from that moment",
        )
    return {folder: [chosen], **others}


class _Vanished(Exception):
    """The source has dropped the checkpoint meanwhile."""


def _copy(source: CheckpointStore, target: CheckpointStore, generations: Iterable[Generation]) -> None:
    """Contents first: whatever happens, a generation's list is never there without its files."""
    keys = {key for generation in generations for key in generation.keys}
    lists = {key for key in keys if "generations/" in key}
    inside = source.reaches(target)

    def copy(key: str) -> None:
        source.bucket.copy(source.prefix + key, target.bucket, target.prefix + key, inside=inside)

    try:
        with ThreadPoolExecutor(_AT_ONCE, "copy-checkpoint") as pool:
            for batch in (sorted(keys - lists), sorted(lists)):
                list(pool.map(copy, batch))
    except StoreError as error:
        discard(target)
        if error.kind == "not_found":
            raise _Vanished from error
        raise


def discard(store: CheckpointStore) -> None:
    """Remove a copy that no job has."""
    store.bucket.delete([info.key for info in store.bucket.objects(store.prefix)])
