"""Keeping secrets."""

from __future__ import annotations

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert

from weft_api.http.problems import not_found
from weft_api.secrets.schemas import SecretView
from weft_core.ids import new_id
from weft_core.secrets import SecretBox
from weft_core.store.models import Secret
from weft_core.store.scope import Scope

# Credentials of jobs and data stores are secrets too; their names have a slash, which no user's own has.
_OWN = (Secret.job_id.is_(None), Secret.name.not_like("%/%"))


def list_secrets(scope: Scope) -> list[SecretView]:
    return [_view(row) for row in scope.all(scope.select(Secret, *_OWN).order_by(Secret.name))]


def put_secret(scope: Scope, box: SecretBox, name: str, value: str) -> SecretView:
    """Keep ``value`` under ``name``, whatever was there."""
    row = insert(Secret).values(
        id=new_id("sec"), project_id=scope.project_id, name=name, job_id=None, ciphertext=box.encrypt(value)
    )
    scope.session.execute(
        row.on_conflict_do_update(
            index_elements=["project_id", "name"],
            set_={"ciphertext": row.excluded.ciphertext, "updated_at": func.now()},
        )
    )
    return _view(_find(scope, name))


def delete_secret(scope: Scope, name: str) -> None:
    """Raises Problem not_found. Jobs that name it and have not started yet will fail saying so."""
    scope.session.delete(_find(scope, name))


def _find(scope: Scope, name: str) -> Secret:
    row = scope.find(Secret, Secret.name == name, *_OWN)
    if row is None:
        raise not_found("secret", name)
    return row


def _view(row: Secret) -> SecretView:
    return SecretView(name=row.name, created_at=row.created_at, updated_at=row.updated_at)
