"""Keeping data stores, and listing their content."""

from __future__ import annotations

from sqlalchemy import func
from sqlalchemy.exc import IntegrityError

from weft_api.access.auth import Principal
from weft_api.context import Context
from weft_api.datastores.schemas import DatastoreBody, DatastoreView, NewDatastore
from weft_api.http.audited import about
from weft_api.http.idempotency import Once
from weft_api.http.problems import CONFLICT, EXISTS, Problem, not_found
from weft_api.storage.clients import open_store, users_store
from weft_api.storage.locations import OpenStore, open_kept
from weft_core.ids import new_id
from weft_core.manifest import Credentials
from weft_core.objects import S3Store
from weft_core.store.credentials import seal, unseal
from weft_core.store.models import Datastore, Secret
from weft_core.store.scope import Scope

_ANY = "weft"
"""Containers are listed through a client that is made for one; the name is never sent then."""


def list_datastores(context: Context, scope: Scope) -> list[DatastoreView]:
    rows = scope.all(scope.select(Datastore).order_by(Datastore.name))
    secrets = scope.all(scope.select(Secret, Secret.id.in_([row.secret_id for row in rows])))
    kept: dict[str | None, Secret] = {secret.id: secret for secret in secrets}
    return [_view(context, row, kept.get(row.secret_id)) for row in rows]


def show_datastore(context: Context, scope: Scope, name: str) -> DatastoreView:
    return _view(context, *_find(scope, name))


def create_datastore(context: Context, who: Principal, body: NewDatastore, check: bool, once: Once) -> DatastoreView:
    """Raises Problem (already_exists, store_refused) and StoreError (a store that is away can't be checked)."""
    about("datastore", body.name)
    with context.database.transaction() as session:
        scope = who.scope(session)
        if once.seen(scope) is not None:
            return show_datastore(context, scope, body.name)
    if check:
        check_store(context, body)
    try:
        with context.database.transaction() as session:
            scope = who.scope(session)
            store_id = new_id("ds")
            if once.claim(scope, store_id) != store_id:
                return show_datastore(context, scope, body.name)
            if scope.find(Datastore, Datastore.name == body.name) is not None:
                raise _exists(body.name)
            secret = Secret(
                id=new_id("sec"), name=_secret_name(body.name), ciphertext=seal(context.box, _credentials(body))
            )
            scope.add(secret)
            session.flush()
            row = Datastore(
                id=store_id, name=body.name, endpoint=body.endpoint, region=body.region, secret_id=secret.id
            )
            scope.add(row)
            session.flush()
            return _view(context, row, secret)
    except IntegrityError:
        raise _exists(body.name) from None  # by a request at the same time


def replace_datastore(context: Context, who: Principal, name: str, body: DatastoreBody, check: bool) -> DatastoreView:
    """Raises Problem (not_found, store_refused) and StoreError."""
    with context.database.transaction() as session:
        _own(who.scope(session), name)
    if check:
        check_store(context, body)
    with context.database.transaction() as session:
        row, secret = _own(who.scope(session), name)
        row.endpoint, row.region = body.endpoint, body.region
        secret.ciphertext, secret.updated_at = seal(context.box, _credentials(body)), func.now()
        session.flush()
        return _view(context, row, secret)


def delete_datastore(scope: Scope, name: str) -> None:
    """Raises Problem (not_found, conflict). Jobs that name it and have not started yet will fail saying so."""
    row, secret = _own(scope, name)
    scope.session.delete(row)
    scope.session.flush()
    scope.session.delete(secret)


def check_store(context: Context, body: DatastoreBody) -> None:
    """Ask the store whether it takes these credentials. Raises Problem store_refused, or StoreError."""
    opened = OpenStore(body.endpoint, body.region, _credentials(body))
    with users_store():
        open_store(context, opened.at(_ANY)).containers()


def open_datastore(context: Context, who: Principal, name: str, container: str | None = None) -> S3Store:
    """A container of the data store. Raises Problem not_found."""
    with context.database.transaction() as session:
        opened = open_kept(who.scope(session), context.box, name)
    if opened is None:
        raise not_found("data store", name)
    with users_store():
        return open_store(context, opened.at(container or _ANY))


def _exists(name: str) -> Problem:
    return Problem(EXISTS, f"a data store named {name!r} exists already: PUT /api/v1/datastores/{name} changes it")


def _find(scope: Scope, name: str) -> tuple[Datastore, Secret | None]:
    row = scope.find(Datastore, Datastore.name == name)
    if row is None:
        raise not_found("data store", name)
    return row, scope.find(Secret, Secret.id == row.secret_id) if row.secret_id else None


def _own(scope: Scope, name: str) -> tuple[Datastore, Secret]:
    """A data store that the project may change. Raises Problem (not_found, conflict)."""
    row, secret = _find(scope, name)
    if secret is None:
        raise Problem(
            CONFLICT,
            f"the data store {name!r} is the installation's own, and stays as it is: add one under another name",
        )
    return row, secret


def _secret_name(name: str) -> str:
    return f"datastore/{name}"


def _credentials(body: DatastoreBody) -> Credentials:
    return Credentials(
        body.user_name,
        body.password.get_secret_value(),
        body.session_token.get_secret_value() if body.session_token else None,
        body.ca,
    )


def _view(context: Context, row: Datastore, secret: Secret | None) -> DatastoreView:
    return DatastoreView(
        name=row.name,
        endpoint=row.endpoint,
        region=row.region,
        user_name=unseal(context.box, secret.ciphertext).user_name if secret else None,
        created_at=row.created_at,
    )
