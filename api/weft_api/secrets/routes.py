"""HTTP for secrets."""

from __future__ import annotations

from fastapi import APIRouter

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.problems import NOT_FOUND, responses
from weft_api.secrets import service
from weft_api.secrets.schemas import SecretBody, SecretList, SecretName, SecretView

router = APIRouter(prefix="/api/v1", tags=["secrets"])


@router.get("/secrets", summary="List the names of secrets")
def get_secrets(context: Ctx, who: Viewer) -> SecretList:
    with context.database.transaction() as session:
        return SecretList(secrets=service.list_secrets(who.scope(session)))


@router.put("/secrets/{name}", summary="Store a secret", openapi_extra=audited("secrets.put", "secret:{name}"))
def put_secret(name: SecretName, body: SecretBody, context: Ctx, who: Editor) -> SecretView:
    """The secret is stored encrypted. Manifests refer to it in `secrets:`. The API never returns it."""
    with context.database.transaction() as session:
        return service.put_secret(who.scope(session), context.box, name, body.value.get_secret_value())


@router.delete(
    "/secrets/{name}",
    status_code=204,
    summary="Delete a secret",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("secrets.delete", "secret:{name}"),
)
def delete_secret(name: SecretName, context: Ctx, who: Editor) -> None:
    with context.database.transaction() as session:
        service.delete_secret(who.scope(session), name)
