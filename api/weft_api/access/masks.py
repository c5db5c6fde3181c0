"""Masks the secrets of a job in what its program sends to the API itself, without the agent, which masks all that it
sends."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from weft_api.context import Context, Shared
from weft_api.storage.locations import StoreGone, open_job_store
from weft_core.manifest import Manifest
from weft_core.repositories import split_credentials
from weft_core.secrets import SecretBox, SecretsUnreadable
from weft_core.store.models import Attempt, Job, Secret
from weft_core.store.scope import Scope
from weft_core.tokens import mlflow_token
from weft_trainer.service.mask import STARS, Mask

_MOST_KEPT = 500
_NOT_MASKED = frozenset(
    {"run_id", "run_uuid", "run_ids", "model_id", "experiment_id", "experiment_ids", "status", "page_token"}
)
"""Fields that hold words and ids of the API's own. A short secret may be a part of an id by accident."""
_NAMES = frozenset({"key", "name", "tag_key"})
_IN_NAMES = "---"
"""For the stars, which MLflow allows in no name."""


class Masks:
    """The masks of attempts, by the hash of the token for MLflow. Thread-safe.

    A mask has the secrets of the manifest, the credentials of its data stores and the attempt's own tokens. Temporary
    S3 keys and identity tokens are not in it, as the API does not keep them.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Mask] = OrderedDict()

    def of_attempt(self, mlflow_sha256: str) -> Mask:
        """Begins a transaction of its own for an attempt that is not known yet."""
        with self._lock:
            if found := self._kept.get(mlflow_sha256):
                self._kept.move_to_end(mlflow_sha256)
                return found
        with self._context.database.transaction() as session:
            attempt = session.scalars(select(Attempt).where(Attempt.mlflow_sha256 == mlflow_sha256)).one_or_none()
            if attempt is None:
                return Mask([])  # the call is going to be refused
            mask = Mask(_secrets(self._context.box, session, attempt))
        with self._lock:
            self._kept[mlflow_sha256] = mask
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return mask


MASKS = Shared(Masks)


def masked(value: Any, mask: Mask) -> Any:
    """A JSON value with its texts masked, without the fields that hold ids."""
    # One search through all texts, as nearly all calls have nothing to mask.
    return _masked(value, mask) if mask.finds("\n".join(_texts(value))) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _texts(entry)


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, list):
        return [_masked(entry, mask) for entry in value]
    if isinstance(value, dict):
        return {key: entry if key in _NOT_MASKED else _field(key, entry, mask) for key, entry in value.items()}
    return mask.text(value) if isinstance(value, str) else value


def _field(key: str, value: Any, mask: Mask) -> Any:
    masked = _masked(value, mask)
    renamed = key in _NAMES and isinstance(value, str) and masked != value
    return masked.replace(STARS, _IN_NAMES) if renamed else masked


def _secrets(box: SecretBox, session: Session, attempt: Attempt) -> Iterator[str]:
    """What has been deleted, or can't be read any more, is left out."""
    scope = Scope(session, attempt.project_id)
    job = scope.find(Job, Job.id == attempt.job_id)
    assert job is not None  # an attempt has a job
    manifest = Manifest.model_validate(job.manifest)
    with suppress(SecretsUnreadable):
        token = box.decrypt(attempt.token_ciphertext)
        yield token
        yield mlflow_token(token)
    wanted = set(manifest.secrets.values())
    names = wanted | ({manifest.repo.secret} if manifest.repo and manifest.repo.secret else set())
    for row in scope.all(scope.select(Secret, Secret.name.in_(names), Secret.job_id.is_(None))):
        with suppress(SecretsUnreadable):
            value = box.decrypt(row.ciphertext)
            yield from [value] if row.name in wanted else split_credentials(value)[1:]
    for store in manifest.data_stores:
        with suppress(StoreGone, SecretsUnreadable):
            opened = open_job_store(scope, box, attempt.job_id, store)
            if opened.credentials is not None:
                yield opened.credentials.password
                yield opened.credentials.session_token or ""
