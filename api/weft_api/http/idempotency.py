"""``Idempotency-Key``: a repeated POST gets the answer of the first one.

The key is claimed in the transaction that does the work: either both are there or neither, and of two requests at the
same time the second waits for the first's commit.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header
from sqlalchemy.dialects.postgresql import insert

from weft_api.http.problems import IDEMPOTENCY_CONFLICT, Problem
from weft_core.settings import Settings
from weft_core.store.models import IdempotencyKey
from weft_core.store.scope import Scope

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A string of your choice, new for each request that is not a repetition. The same key with the "
        "same body gets the same answer. With another body, it gets 409.",
        examples=["5f0c8a52-7a55-4d0e-9a5e-6b6f1e0c1f11"],
    ),
]


@dataclass(frozen=True)
class Once:
    """A request that takes effect once. Without a key, every request is new."""

    key: str | None
    route: str
    digest: str

    def seen(self, scope: Scope) -> str | None:
        """The id that the first such request made; None if this is the first. Raises Problem idempotency_conflict."""
        if self.key is None:
            return None
        row = scope.find(IdempotencyKey, IdempotencyKey.key == self.key)
        if row is None:
            return None
        if (row.route, row.body_sha256) != (self.route, self.digest):
            raise Problem(
                IDEMPOTENCY_CONFLICT,
                "this Idempotency-Key came before with another request; send a new key, or the same request",
            )
        return row.resource_id

    def claim(self, scope: Scope, resource_id: str) -> str:
        """Take the key for ``resource_id``. Returns ``resource_id``, or the id that the first request made.

        Raises:
            Problem: idempotency_conflict.
        """
        if self.key is None:
            return resource_id
        row = insert(IdempotencyKey).values(
            project_id=scope.project_id,
            key=self.key,
            route=self.route,
            body_sha256=self.digest,
            resource_id=resource_id,
        )
        # Waits for a concurrent request with the same key to commit or roll back.
        mine = row.on_conflict_do_nothing().returning(IdempotencyKey.key)
        if scope.session.execute(mine).one_or_none() is not None:
            return resource_id
        return self.seen(scope) or resource_id


def once(settings: Settings, key: str | None, route: str, body: Any) -> Once:
    """Describe a request. ``body`` is anything that JSON can represent.

    Bodies contain passwords, so only an HMAC under the installation's key is stored: nobody can guess the body from it.
    """
    secret = settings.secret_keys[0].get_secret_value().encode()
    message = json.dumps(body, sort_keys=True, default=str).encode()
    return Once(key, route, hmac.new(secret, message, hashlib.sha256).hexdigest())
