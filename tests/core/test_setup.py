"""``python -m weft_core.setup``: the first accounts and the bucket of an installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft_core import setup
from weft_core.objects import Objects
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.store.models import Datastore, Member, Project, Secret, Token, User
from weft_core.tokens import hash_token


@pytest.fixture
def configured(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings as a file, with a bucket that is not there yet."""
    fresh = settings.model_copy(update={"s3": settings.s3.model_copy(update={"bucket": f"{settings.s3.bucket}-fresh"})})
    s3 = {
        "endpoint": fresh.s3.endpoint,
        "access_key": fresh.s3.access_key,
        "secret_key": fresh.s3.secret_key.get_secret_value(),
        "bucket": fresh.s3.bucket,
    }
    lines = [f"database_url = {json.dumps(fresh.database_url.get_secret_value())}", "[s3]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in s3.items()]
    (tmp_path / "weft.toml").write_text("\n".join(lines))
    monkeypatch.setenv("WEFT_CONFIG", str(tmp_path / "weft.toml"))
    return fresh


def test_twice_makes_everything_once(
    configured: Settings, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.main([]) == 0
    assert capsys.readouterr().out == ""
    assert setup.main(["--token"]) == 0
    plain = capsys.readouterr().out.strip()
    Objects(configured.s3).check()
    with database.transaction() as session:
        user, project = session.query(User).one(), session.query(Project).one()
        assert (user.name, user.is_admin, project.name) == ("admin", True, "default")
        member = session.query(Member).one()
        assert (member.user_id, member.project_id, member.role) == (user.id, project.id, "owner")
        token = session.query(Token).one()
        assert token.sha256 == hash_token(plain)
        assert plain not in token.prefix


def test_wrong_credentials_are_said(
    configured: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_S3__SECRET_KEY", "wrong")
    assert setup.main([]) == 1
    assert configured.s3.endpoint in capsys.readouterr().err


def stored(database: Database, settings: Settings) -> tuple[str, dict[str, str]]:
    """The endpoint and the credentials of the only data store."""
    with database.transaction() as session:
        row = session.query(Datastore).one()
        assert row.name == "default"
        secret = session.get_one(Secret, row.secret_id)
        return row.endpoint, json.loads(SecretBox(settings.secret_keys).decrypt(secret.ciphertext))


def test_the_data_store_of_the_settings(
    configured: Settings, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.main([]) == 0
    with database.transaction() as session:
        assert session.query(Datastore).count() == 0, "none is named"
    monkeypatch.setenv("WEFT_DATASTORE__ACCESS_KEY", "users")
    monkeypatch.setenv("WEFT_DATASTORE__SECRET_KEY", "of users")
    assert setup.main([]) == 1
    assert "secret_keys is empty" in capsys.readouterr().err
    monkeypatch.setenv("WEFT_SECRET_KEYS", configured.secret_keys[0].get_secret_value())
    for _ in range(2):
        assert setup.main([]) == 0
        credentials = {"user_name": "users", "password": "of users"}
        assert stored(database, configured) == (configured.s3.endpoint, credentials)
    # The data store follows the settings: the address that users reach, and a new password.
    monkeypatch.setenv("WEFT_S3__PUBLIC_ENDPOINT", "https://s3.example.org")
    monkeypatch.setenv("WEFT_DATASTORE__SECRET_KEY", "another")
    assert setup.main([]) == 0
    credentials["password"] = "another"
    assert stored(database, configured) == ("https://s3.example.org", credentials)
    # A data store that somebody has pointed elsewhere, with other credentials, stays.
    theirs = {"user_name": "theirs", "password": "own"}
    with database.transaction() as session:
        row = session.query(Datastore).one()
        row.endpoint = "https://theirs.example.org"
        session.get_one(Secret, row.secret_id).ciphertext = SecretBox(configured.secret_keys).encrypt(
            json.dumps(theirs)
        )
    assert setup.main([]) == 0
    assert stored(database, configured) == ("https://theirs.example.org", theirs)


def test_a_store_that_projects_share(configured: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data store of an earlier version becomes a part of it, with its buckets, and loses its keys."""
    monkeypatch.setenv("WEFT_SECRET_KEYS", configured.secret_keys[0].get_secret_value())
    monkeypatch.setenv("WEFT_DATASTORE__ACCESS_KEY", "users")
    monkeypatch.setenv("WEFT_DATASTORE__SECRET_KEY", "of users")
    assert setup.main([]) == 0
    with database.transaction() as session:
        session.add_all(Project(id=f"prj-{name}", name=name) for name in ("early", "late"))
        box = SecretBox(configured.secret_keys)
        own = session.get_one(Project, "prj-late")
        setup.add_datastore(session, box, own, "https://late.example.org", "us-east-1", "late", "own")
    monkeypatch.setenv("WEFT_DATASTORE__TEMPORARY_KEYS", "true")
    monkeypatch.setenv("WEFT_S3__PUBLIC_ENDPOINT", "https://s3.example.org")
    for _ in range(2):
        assert setup.main([]) == 0
        with database.transaction() as session:
            rows = session.query(Datastore, Project.name).join(Project, Project.id == Datastore.project_id).all()
            assert {name: (row.endpoint, row.space, row.secret_id is None) for row, name in rows} == {
                "default": ("https://s3.example.org", "", True),
                "early": ("https://s3.example.org", "weft-early-", True),
                "late": ("https://late.example.org", None, False),
            }
            assert [kept.project_id for kept in session.query(Secret)] == ["prj-late"]
