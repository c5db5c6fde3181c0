"""Temporary keys for the data store that the installation shares among its projects.

The store issues them by AWS's Security Token Service (STS): for a federated user, or for a role. A policy in the
request narrows the keys down to buckets and prefixes. Source: AWS, "Security Token Service API Reference",
GetFederationToken and AssumeRole; SeaweedFS has the same, and MinIO has AssumeRole.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.awsrequest import AWSRequest
from botocore.config import Config

from weft_api.context import Context, Shared
from weft_core import aws
from weft_core.launch import LearnerSpec, S3Location, StoreKeys
from weft_core.objects import store_errors
from weft_core.settings import Settings
from weft_core.setup import SPACES, learner_key_name

LEARNER_SECONDS = 900
"""How long a learner's keys are valid: the shortest time that STS allows. The learner's agent renews them long before
they end, as long as the attempt lasts. When it is over, the workers close the buckets to them
(``weft_workers.ended_keys``)."""
_PROJECT_SECONDS = 12 * 3600
"""URLs that the API signs end with the keys at the latest."""
_ROLE_SECONDS = 3600
"""The longest session of a role, unless its owner allows more."""
_FRESH = 1 / 12
"""The share of their life after which keys are not handed out again."""
_READ = ["s3:GetObject"]
_WRITE = [*_READ, "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]


@dataclass(frozen=True)
class _Issued:
    keys: StoreKeys
    ends: float  # by time.monotonic()
    fresh_until: float


class TemporaryKeys:
    """Asks the store for keys, and keeps them for a short while: the learners of a gang, and requests for the same
    project, share theirs. Thread-safe. Raises: StoreError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._issued: dict[tuple[str, str], _Issued] = {}
        """By the name that they are issued in, and by policy."""
        self._client: Any = None

    def for_learner(self, spec: LearnerSpec, attempt_id: str) -> StoreKeys | None:
        """Keys for the locations of ``spec`` that need them; None: there is no such location."""
        policy = learner_policy(spec)
        return self._get(learner_key_name(attempt_id), policy, LEARNER_SECONDS) if policy else None

    def open(self, location: S3Location) -> S3Location:
        """``location`` with keys for all buckets of its project, for the API's own requests."""
        if not location.temporary:
            return location
        policy = project_policy(location.space, self._settings.s3.bucket)
        name = f"weft-{hashlib.sha256(policy.encode()).hexdigest()[:16]}"
        keys = self._get(name, policy, _PROJECT_SECONDS)
        given = {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.session_token}
        return location.model_copy(update={"temporary": False, **given})

    def _get(self, name: str, policy: str, seconds: int) -> StoreKeys:
        with self._lock:
            now = time.monotonic()
            issued = self._issued.get((name, policy))
            if issued is None or issued.fresh_until < now:
                issued = self._issue(name, policy, seconds)
                self._issued = {known: kept for known, kept in self._issued.items() if kept.fresh_until > now}
                self._issued[name, policy] = issued
            return issued.keys.model_copy(update={"seconds": issued.ends - now})

    def _issue(self, name: str, policy: str, seconds: int) -> _Issued:
        wanted = self._settings.datastore
        if self._client is None:
            self._client = _make_client(self._settings)
        with store_errors(wanted.sts_endpoint or wanted.endpoint or self._settings.s3.endpoint, "temporary keys"):
            if wanted.role:
                answer = self._client.assume_role(
                    RoleArn=wanted.role,
                    RoleSessionName=name,
                    Policy=policy,
                    DurationSeconds=min(seconds, _ROLE_SECONDS),
                )
            else:
                answer = self._client.get_federation_token(Name=name, Policy=policy, DurationSeconds=seconds)
        issued = answer["Credentials"]
        now = time.monotonic()
        life = (issued["Expiration"] - datetime.now(UTC)).total_seconds()
        keys = StoreKeys(
            access_key=issued["AccessKeyId"],
            secret_key=issued["SecretAccessKey"],
            session_token=issued["SessionToken"],
            seconds=life,
        )
        return _Issued(keys, now + life, now + life * _FRESH)


TEMPORARY_KEYS = Shared(lambda context: TemporaryKeys(context.settings))


def opened(context: Context, location: S3Location) -> S3Location:
    """``location`` with keys, which may have to be issued first. Raises: StoreError."""
    return TEMPORARY_KEYS.of(context).open(location)


def learner_policy(spec: LearnerSpec) -> str | None:
    """The rights of a learner in the shared store: to read its inputs, and to read and write its results and
    checkpoints."""
    reads = [entry.location for entry in spec.data] + [spec.pretrained, spec.shared_checkpoints]
    read = [location for location in reads if location is not None and location.temporary]
    write = [location for location in (spec.results, spec.checkpoints) if location is not None and location.temporary]
    statements: list[dict[str, Any]] = []
    for actions, locations in ((_READ, read), (_WRITE, write)):
        if locations:
            statements.append(_allow(actions, sorted({f"{_arn(each)}/{_below(each)}" for each in locations})))
    prefixes: dict[str, set[str]] = {}
    for location in [*read, *write]:
        prefixes.setdefault(_arn(location), set()).add(_below(location))
    for bucket, below in sorted(prefixes.items()):
        condition = {} if "*" in below else {"Condition": {"StringLike": {"s3:prefix": sorted(below)}}}
        statements.append(_allow(["s3:ListBucket"], [bucket]) | condition)
    return _policy(statements) if statements else None


def project_policy(space: str, own: str) -> str:
    """The rights of a project in the shared store: everything in its own buckets.

    Args:
        space: the beginning of the names of its buckets; empty: all buckets but those of the other projects and
            ``own``.
        own: the installation's bucket, which may be in the same store.
    """
    everywhere = _allow(["s3:ListAllMyBuckets"], ["*"])
    if space:
        return _policy([everywhere, _allow(["s3:*"], [f"arn:aws:s3:::{space}*"])])
    closed = [f"arn:aws:s3:::{name}" for name in (SPACES, own, f"{own}/*")]
    return _policy([everywhere, _allow(["s3:*"], ["*"]), _allow(["s3:*"], closed) | {"Effect": "Deny"}])


def _arn(location: S3Location) -> str:
    return f"arn:aws:s3:::{_literal(location.bucket)}"


def _below(location: S3Location) -> str:
    return f"{_literal(location.prefix)}/*" if location.prefix else "*"


def _literal(name: str) -> str:
    """A name in a policy. ``?`` stands for any character, and thus for those that mean something else there."""
    return name.translate(str.maketrans("*$", "??"))


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}


def _policy(statements: list[dict[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _make_client(settings: Settings) -> Any:
    wanted = settings.datastore
    client = aws.make_client(
        "sts",
        endpoint_url=wanted.sts_endpoint or wanted.endpoint or settings.s3.endpoint,
        region_name=wanted.region,
        aws_access_key_id=wanted.access_key,
        aws_secret_access_key=wanted.secret_key.get_secret_value(),
        config=Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 3, "mode": "standard"}),
    )
    client.meta.events.register("before-sign.sts", _add_digest)
    return client


def _add_digest(request: AWSRequest, **_: object) -> None:
    """SeaweedFS reads the form before it checks the signature, and so needs the digest of the body as a header."""
    body = request.body or b""
    request.headers["X-Amz-Content-SHA256"] = hashlib.sha256(
        body.encode() if isinstance(body, str) else body
    ).hexdigest()
