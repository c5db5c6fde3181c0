"""Identity tokens of learners: a verifier that knows only the issuer's URL takes the right ones, and no others."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from pydantic import SecretStr
from sqlalchemy import select, update
from tests.api.conftest import Api, Person, code_of
from tests.api.test_real_agent import log, start
from tests.servers import Servers

from weft_api.access import identity_tokens
from weft_core.secrets import SecretBox, generate_key
from weft_core.settings import IdentitySettings, Settings
from weft_core.store import signing_keys
from weft_core.store.models import SigningKey
from weft_core.store.rotate import rotate

AUDIENCE = "sts.amazonaws.com"
MANIFEST = "name: hello\nframework: {name: python, command: %r}\nidentity: {audience: sts.amazonaws.com}\n"
HELLO = MANIFEST % "echo hello"


@pytest.fixture(scope="module")
def api(api_settings: Settings, servers: Servers) -> Iterator[Api]:
    """With a database of its own, so that it holds only objects under this module's keys."""
    with servers.database_url() as url:
        settings = api_settings.model_copy(update={"database_url": SecretStr(url)})
        running = Api(settings)
        settings.identity = IdentitySettings(issuer=running.url)  # its port is known by now
        yield running
        running.stop()


@pytest.fixture(autouse=True)
def _no_keys(api: Api) -> None:
    with api.context.database.transaction() as session:
        for key in session.scalars(select(SigningKey)):
            session.delete(key)


def verify(issuer: str, token: str, audience: str = AUDIENCE, at: float | None = None) -> dict[str, Any]:
    """The claims, as a cloud's STS checks them. Raises JoseError."""
    found = httpx.get(f"{issuer}/.well-known/openid-configuration").raise_for_status().json()
    assert found["issuer"] == issuer
    keys = KeySet.import_key_set(httpx.get(found["jwks_uri"]).raise_for_status().json())
    decoded = jwt.decode(token, keys, algorithms=found["id_token_signing_alg_values_supported"])
    rules = jwt.JWTClaimsRegistry(
        now=int(at or time.time()),
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": audience},
        sub={"essential": True},
        exp={"essential": True},
    )
    rules.validate(decoded.claims)
    return decoded.claims


def change_keys(api: Api, **values: Any) -> None:
    with api.context.database.transaction() as session:
        session.execute(update(SigningKey).values(**values))


def token_of(api: Api, person: Person, manifest: str = HELLO) -> str:
    spec = api.attempt(person.submit(manifest)["id"]).agents[0].start()
    token: str = spec["identity"]["token"]
    return token


def test_a_verifier_takes_the_token_of_a_learner(api: Api, ann: Person) -> None:
    job = ann.submit(HELLO)["id"]
    attempt = api.attempt(job)
    (agent,) = attempt.agents
    given = agent.start()["identity"]
    claims = verify(api.url, given["token"])
    assert claims["sub"] == f"project:{ann.project_id}:job:{job}"
    assert claims["weft"] == {
        "project": ann.project,
        "project_id": ann.project_id,
        "job": job,
        "attempt": 1,
        "learner": 1,
        "user": ann.name,
    }
    assert claims["exp"] - claims["iat"] == given["seconds"] == 3600
    assert claims["nbf"] == claims["iat"]
    renewed = agent.post("identity-token").json()
    assert verify(api.url, renewed["token"])["jti"] != claims["jti"]


def test_a_wrong_audience_and_a_token_at_its_end_are_refused(api: Api, ann: Person) -> None:
    token = token_of(api, ann)
    with pytest.raises(InvalidClaimError, match="aud"):
        verify(api.url, token, "api://AzureADTokenExchange")
    with pytest.raises(ExpiredTokenError):
        verify(api.url, token, at=time.time() + 3601)
    head, body, signature = token.split(".")
    with pytest.raises(JoseError):
        verify(api.url, f"{head}.{body}.{signature[::-1]}")


def test_the_subject_of_a_project_is_the_same_for_all_of_its_jobs(api: Api, ann: Person, bob: Person) -> None:
    manifest = HELLO.replace("amazonaws.com", "amazonaws.com, subject: project")
    tokens = [token_of(api, person, manifest) for person in (ann, ann, bob)]
    subjects = [verify(api.url, token)["sub"] for token in tokens]
    assert subjects == [f"project:{person.project_id}" for person in (ann, ann, bob)]


def test_an_attempt_that_is_over_gets_none(api: Api, ann: Person) -> None:
    attempt = api.attempt(ann.submit(HELLO)["id"])
    (agent,) = attempt.agents
    assert agent.post("identity-token").status_code == 410, "it has not started"
    agent.start()
    api.end_attempt(attempt)
    answer = agent.post("identity-token")
    assert (answer.status_code, code_of(answer)) == (410, "stale_attempt")


def test_only_jobs_that_ask_get_one(api: Api, ann: Person) -> None:
    (agent,) = api.attempt(ann.submit()["id"]).agents
    assert agent.start()["identity"] is None
    answer = agent.post("identity-token")
    assert (answer.status_code, code_of(answer)) == (409, "conflict")


def test_keys_change_with_an_overlap(api: Api, ann: Person) -> None:
    first = token_of(api, ann)
    soon = datetime.now(UTC) + timedelta(hours=23)
    change_keys(api, signs_until=soon)
    jwks = f"{api.url}/.well-known/jwks.json"
    assert len(httpx.get(jwks).json()["keys"]) == 2, "the next key is published a day before it signs"
    assert jwt.decode(token_of(api, ann), KeySet.import_key_set(httpx.get(jwks).json())).header["kid"] == _kid(first)
    now = datetime.now(UTC)
    with api.context.database.transaction() as session:
        old = session.get_one(SigningKey, _kid(first))
        session.execute(update(SigningKey).where(SigningKey.id != old.id).values(signs_from=now))
        old.signs_until = now
    second = token_of(api, ann)
    assert _kid(second) != _kid(first)
    verify(api.url, first)
    verify(api.url, second)
    with api.context.database.transaction() as session:
        session.get_one(SigningKey, _kid(first)).published_until = datetime.now(UTC)
    with pytest.raises(InvalidKeyIdError):
        verify(api.url, first)
    verify(api.url, second)


def test_keys_can_be_retired_at_once(api: Api, ann: Person) -> None:
    old = token_of(api, ann)
    with api.context.database.transaction() as session:
        assert signing_keys.retire_all(session) == 1
    new = token_of(api, ann)
    with pytest.raises(InvalidKeyIdError):
        verify(api.url, old)
    verify(api.url, new)


def test_private_keys_are_kept_encrypted_and_rotate(api: Api, ann: Person) -> None:
    token = token_of(api, ann)
    published = httpx.get(f"{api.url}/.well-known/jwks.json").json()["keys"]
    assert [set(key) for key in published] == [{"kty", "kid", "use", "alg", "n", "e"}], "nothing of the private half"
    with api.context.database.transaction() as session:
        kept = session.scalars(select(SigningKey)).one()
    assert b"PRIVATE" not in kept.private_ciphertext
    new = SecretStr(generate_key())
    try:
        rotate(api.context.database, SecretBox([new, *api.context.settings.secret_keys]))
        with api.context.database.transaction() as session:
            row = session.get_one(SigningKey, _kid(token))
            assert "PRIVATE" in SecretBox([new]).decrypt(row.private_ciphertext)
    finally:
        rotate(api.context.database, SecretBox([*api.context.settings.secret_keys, new]))
    verify(api.url, token_of(api, ann))


@pytest.mark.slow
def test_an_agent_keeps_the_file_fresh(api: Api, ann: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_tokens, "SECONDS", 4)
    copies = tmp_path / "copies"
    copies.mkdir()
    command = (
        f'f="$WEFT_ID_TOKEN_FILE"; cp "$f" {copies}/first; '
        f'while cmp -s "$f" {copies}/first; do sleep 0.1; done; cp "$f" {copies}/second; '
        f'echo "it is $(cat {copies}/second)"'
    )
    job = ann.submit(MANIFEST % command)
    assert start(api, api.attempt(job["id"]), tmp_path / "learner").wait(600) == 0
    tokens = [(copies / name).read_text() for name in ("first", "second")]
    # A busy machine may come here after their end.
    claims = [verify(api.url, token, at=_part(token, 1)["iat"]) for token in tokens]
    assert claims[0]["jti"] != claims[1]["jti"]
    (line,) = log(ann, job)
    assert line.startswith("it is ")
    assert tokens[1] not in line, "a token is masked in the log"


def _part(token: str, number: int) -> dict[str, Any]:
    """A part of a token, read without verification."""
    text = token.split(".")[number]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def _kid(token: str) -> str:
    kid: str = _part(token, 0)["kid"]
    return kid


def test_without_the_setting_there_are_none(api_settings: Settings) -> None:
    running = Api(api_settings)
    try:
        person = running.person()
        for path in ("openid-configuration", "jwks.json"):
            answer = httpx.get(f"{running.url}/.well-known/{path}")
            assert (answer.status_code, code_of(answer)) == (404, "not_found")
        refused = person.http.post("/api/v1/jobs", json={"manifest": HELLO})
        assert (refused.status_code, code_of(refused)) == (400, "invalid_manifest")
        assert "identity.issuer" in refused.json()["detail"]
    finally:
        running.stop()
