"""Ends the temporary keys of learners with their attempt, in the store that projects share.

The store keeps no list of the keys that it has issued: it checks their signature and their time. But it looks at a
bucket's policy at each request, and keys are issued in the name of their attempt. So the policies of the buckets that
an attempt used deny everything to its name from its end on. The keys of a role (``datastore.role``) have no such name,
and last until their time is over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import structlog
from sqlalchemy import ColumnElement, func, select, text
from sqlalchemy.orm import Session

from weft_core.manifest import Manifest, Place
from weft_core.objects import StoreError, make_client, store_errors
from weft_core.settings import Settings
from weft_core.setup import datastore_endpoint, learner_key_name
from weft_core.store.database import Database
from weft_core.store.models import Attempt, Datastore, Job, ModelVersion

log = structlog.get_logger(__name__)

_STATEMENT = "WeftEndedAttempts"
_LONGEST_LIFE = "16 minutes"
"""Later, no key of an attempt is valid any more."""
_MOST = 400
"""Names in a policy: S3 allows 20 KiB. The oldest go first."""


class EndedKeys:
    """Any number of workers may run one. What it has done needs no memory: a second time changes nothing."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._done: set[str] = set()
        self._s3: Any = None

    @staticmethod
    def wanted(settings: Settings) -> bool:
        return settings.datastore.temporary_keys and not settings.datastore.role

    def end_due(self) -> None:
        """End the keys of the attempts that have ended since the last call, or that may still have keys.

        Raises:
            StoreError: the store is away; the next call tries again.
        """
        found = self._recent()
        self._done &= found
        self._end(found - self._done)
        self._done |= found

    def end_of_job(self, job_id: str) -> None:
        """End the keys of a job whose rows are about to go. Raises: StoreError."""
        self._end(self._recent(Attempt.job_id == job_id))

    def _recent(self, *conditions: ColumnElement[bool]) -> set[str]:
        recent = Attempt.ended_at > func.now() - text(f"interval '{_LONGEST_LIFE}'")
        with self._database.transaction() as session:
            return set(session.scalars(select(Attempt.id).where(recent, *conditions)))

    def _end(self, attempt_ids: Collection[str]) -> None:
        if not attempt_ids:
            return
        names: dict[str, set[str]] = {}
        spaces: dict[str, dict[str, str]] = {}
        with self._database.transaction() as session:
            query = select(Attempt.id, Job).join(Job, Job.id == Attempt.job_id).where(Attempt.id.in_(attempt_ids))
            for attempt_id, job in session.execute(query):
                if job.project_id not in spaces:
                    spaces[job.project_id] = _spaces(session, job.project_id)
                for bucket in _buckets(session, job, spaces[job.project_id]):
                    names.setdefault(bucket, set()).add(learner_key_name(attempt_id))
        for bucket, denied in sorted(names.items()):
            self._deny(bucket, denied)

    def _deny(self, bucket: str, names: set[str]) -> None:
        try:
            with self._database.transaction() as session, store_errors(datastore_endpoint(self._settings), bucket):
                # One worker at a time changes the policy of a bucket.
                lock = text("select pg_advisory_xact_lock(hashtextextended(:name, 0))")
                session.execute(lock, {"name": f"policy of {bucket}"})
                policy = self._policy(bucket)
                if changed := deny(policy, bucket, names):
                    self._client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(changed))
        except StoreError as error:
            if error.kind == "unreachable":
                raise
            if error.kind != "no_container":
                log.warning("keys of ended attempts last until their time is over", bucket=bucket, error=str(error))

    def _policy(self, bucket: str) -> dict[str, Any]:
        try:
            policy: dict[str, Any] = json.loads(self._client.get_bucket_policy(Bucket=bucket)["Policy"])
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchBucketPolicy":
                raise
            policy = {"Version": "2012-10-17", "Statement": []}
        return policy

    @property
    def _client(self) -> Any:
        if self._s3 is None:
            wanted = self._settings.datastore
            key = wanted.secret_key.get_secret_value()
            self._s3 = make_client(datastore_endpoint(self._settings), wanted.region, wanted.access_key, key)
        return self._s3


def deny(policy: dict[str, Any], bucket: str, names: set[str]) -> dict[str, Any] | None:
    """``policy`` with everything denied to the keys of these names; None: it is already. Statements of others stay."""
    others = [statement for statement in policy["Statement"] if statement.get("Sid") != _STATEMENT]
    mine = [statement for statement in policy["Statement"] if statement.get("Sid") == _STATEMENT]
    known = [name for statement in mine for name in _listed(statement["Condition"]["StringLike"]["aws:PrincipalArn"])]
    patterns = [f"*:federated-user/{name}" for name in sorted(names)]
    if set(patterns) <= set(known):
        return None
    listed = [*(pattern for pattern in known if pattern not in patterns), *patterns][-_MOST:]
    statement = {
        "Sid": _STATEMENT,
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"StringLike": {"aws:PrincipalArn": listed}},
    }
    return {**policy, "Statement": [*others, statement]}


def _listed(value: str | list[str]) -> list[str]:
    """A policy may have a text for a list of one."""
    return [value] if isinstance(value, str) else value


def _spaces(session: Session, project_id: str) -> dict[str, str]:
    """What the names of a project's buckets in the shared store begin with, by data store."""
    shared = select(Datastore.name, Datastore.space).where(
        Datastore.project_id == project_id, Datastore.secret_id.is_(None)
    )
    return {name: space or "" for name, space in session.execute(shared)}


def _buckets(session: Session, job: Job, spaces: Mapping[str, str]) -> Iterator[str]:
    """The buckets of the shared store that the keys of a job's learners open."""
    manifest = Manifest.model_validate(job.manifest)
    places: list[tuple[str | None, str | None]] = [
        (store.datastore, place.container) for store, place in manifest.inputs
    ]
    for found in (manifest.results_place, manifest.pretrained):
        if found is not None and isinstance(found[1], Place):
            places.append((found[0].datastore, found[1].container))
    version = session.get(ModelVersion, job.pretrained_id) if job.pretrained_id else None
    if version is not None:
        places.append((version.datastore, version.container))
    for store, container in places:
        if store is not None and container and store in spaces:
            yield spaces[store] + container
