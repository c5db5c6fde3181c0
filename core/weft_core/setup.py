"""Prepares an installation after its schema: the bucket, administrator, project, and data store of its settings.

``python -m weft_core.setup`` is idempotent, and to be run after the migrations. ``--token`` also prints a fresh token
of the administrator's, which is how the first user of an installation gets in.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys

from pydantic import ValidationError
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from weft_core.ids import new_id
from weft_core.secrets import SecretBox, SecretsUnreadable
from weft_core.settings import Settings, load_settings
from weft_core.store.database import Database
from weft_core.store.models import Datastore, Member, Project, Secret, Token, User
from weft_core.tokens import new_token

ADMIN = "admin"
PROJECT = "default"
DATASTORE = "default"
SPACES = "weft-????????????-*"
"""The names of all buckets that belong to other projects than `default`. A question mark is any character."""


def ensure_admin(session: Session) -> tuple[User, Project]:
    """The first administrator and the project `default`, of which they are an owner. They sign in with tokens only."""
    user = session.scalars(select(User).where(User.is_admin).order_by(User.created_at, User.id).limit(1)).one_or_none()
    if user is None:
        user = User(id=new_id("user"), name=ADMIN, is_admin=True)
        session.add(user)
    project = session.scalars(select(Project).where(Project.name == PROJECT)).one_or_none()
    if project is None:
        project = Project(id=new_id("proj"), name=PROJECT)
        session.add(project)
    session.flush()
    if session.get(Member, (project.id, user.id)) is None:
        session.add(Member(project_id=project.id, user_id=user.id, role="owner"))
    return user, project


def add_datastore(
    session: Session, box: SecretBox, project: Project, endpoint: str, region: str, user_name: str, password: str
) -> None:
    """Make the project's data store `default`."""
    secret = Secret(
        id=new_id("sec"),
        project_id=project.id,
        name=f"datastore/{DATASTORE}",
        ciphertext=box.encrypt(json.dumps({"user_name": user_name, "password": password})),
    )
    session.add(secret)
    session.flush()
    session.add(
        Datastore(
            id=new_id("ds"),
            project_id=project.id,
            name=DATASTORE,
            endpoint=endpoint,
            region=region,
            secret_id=secret.id,
        )
    )


def ensure_datastore(session: Session, settings: Settings, project: Project) -> None:
    """Make the data store of the settings, or let it follow them. One with another access key is a user's: it stays.

    Args:
        project: the project `default`.

    Raises:
        SecretsUnreadable: the stored credentials were encrypted with a key that is no longer in the settings.
        ValueError: there are no keys to encrypt with.
    """
    wanted = settings.datastore
    if not wanted.access_key:
        return
    box = SecretBox(settings.secret_keys)
    endpoint = datastore_endpoint(settings)
    password = wanted.secret_key.get_secret_value()
    row = session.scalars(
        select(Datastore).where(Datastore.project_id == project.id, Datastore.name == DATASTORE)
    ).one_or_none()
    kept = session.get(Secret, row.secret_id) if row is not None and row.secret_id is not None else None
    credentials = json.loads(box.decrypt(kept.ciphertext)) if kept else {}
    is_ours = credentials.get("user_name") == wanted.access_key
    if wanted.temporary_keys:
        if row is not None and kept is not None and is_ours:
            row.secret_id, row.space = None, ""
            session.flush()
            session.delete(kept)
        for each in session.scalars(select(Project)):
            share_datastore(session, settings, each, "" if each.id == project.id else None)
        session.execute(
            update(Datastore)
            .where(Datastore.secret_id.is_(None))
            .values(endpoint=endpoint, region=wanted.region)
            .execution_options(synchronize_session=False)
        )
    elif row is None:
        add_datastore(session, box, project, endpoint, wanted.region, wanted.access_key, password)
    elif kept is not None and is_ours:
        row.endpoint, row.region = endpoint, wanted.region
        if credentials["password"] != password:
            kept.ciphertext = box.encrypt(json.dumps({**credentials, "password": password}))


def share_datastore(session: Session, settings: Settings, project: Project, space: str | None = None) -> None:
    """Make the project's data store `default` in the store that issues temporary keys, if there is such a store, and
    the project has no data store of this name.

    Args:
        space: the beginning of its buckets' names; default: a prefix that no other project has.
    """
    if not settings.datastore.temporary_keys:
        return
    values = {
        "id": new_id("ds"),
        "project_id": project.id,
        "name": DATASTORE,
        "endpoint": datastore_endpoint(settings),
        "region": settings.datastore.region,
        "space": space_of(project.id) if space is None else space,
    }
    session.execute(insert(Datastore).values(values).on_conflict_do_nothing())


def space_of(project_id: str) -> str:
    """The beginning of the names of a project's buckets in a store that projects share."""
    return f"weft-{project_id.partition('-')[2]}-"


def learner_key_name(attempt_id: str) -> str:
    """The name of a federated user in which the store issues the keys of an attempt's learners."""
    return f"weft-{attempt_id}"


def datastore_endpoint(settings: Settings) -> str:
    """The URL of the data store of the settings, as learners and users reach it."""
    return settings.datastore.endpoint or settings.s3.public_endpoint or settings.s3.endpoint


def issue_token(session: Session, user: User, project: Project, name: str) -> str:
    """A fresh token of the user's for the project, in plain: nobody sees it again."""
    token = new_token("user")
    session.add(
        Token(
            id=new_id("tok"),
            project_id=project.id,
            user_id=user.id,
            name=name,
            prefix=token.prefix,
            sha256=token.sha256,
        )
    )
    return token.plain


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft_core.setup", description=__doc__)
    parser.add_argument("--token", action="store_true", help="print a fresh token of the administrator's")
    options = parser.parse_args(arguments)
    # Only here, as boto3 takes 0.3 s to load, and other users of this module do not need it.
    from weft_core.objects import Objects, StoreError

    try:
        settings = load_settings()
        Objects(settings.s3).ensure()
        database = Database(settings.database_url.get_secret_value(), pool_size=1)
        try:
            with database.transaction() as session:
                user, project = ensure_admin(session)
                ensure_datastore(session, settings, project)
                name = f"setup on {socket.gethostname()}"
                token = issue_token(session, user, project, name) if options.token else None
        finally:
            database.close()
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in problem['loc'])}: {problem['msg']}" for problem in error.errors()
        )
        print(f"settings: {problems}", file=sys.stderr)
        return 2
    except DBAPIError as error:
        print(f"Postgres: {' '.join(str(error.orig).split())}", file=sys.stderr)
        return 1
    except (StoreError, SecretsUnreadable, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if token is not None:
        print(token)
    return 0


if __name__ == "__main__":
    sys.exit(main())
