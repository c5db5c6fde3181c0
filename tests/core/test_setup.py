"""``python -m weft_core.setup``: the first accounts and the bucket of an installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft_core import setup
from weft_core.objects import Objects
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.store.models import Member, Project, Token, User
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
