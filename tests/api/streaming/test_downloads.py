"""Downloads end with the sign-in that asked for them."""

from __future__ import annotations

import time
from contextlib import ExitStack

import httpx
import pytest
from sqlalchemy import func, update
from tests.api.conftest import PASSWORD, Api, Person

from weft_api.streaming.sign_ins import SIGN_INS
from weft_core.objects import results_prefix
from weft_core.store.models import Token

_LARGE = 32 << 20
"""Bytes: more than the kernel keeps for a client that does not read."""


def test_downloads_are_cut_when_their_sign_in_ends(api: Api, root: Person, ann: Person) -> None:
    """Also those whose client reads nothing. The client does not take the part that it got for the whole file."""
    job = ann.submit()["id"]
    api.context.objects.put(results_prefix(ann.project_id, job) + "model.pt", bytes(_LARGE))
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)
    browser, basic, other = api.client(), api.client(), api.person("viewer", ann.project_id)
    browser.post("/api/v1/session", json={"token": ann.token}).raise_for_status()
    basic.auth = (ann.name, PASSWORD)
    downloads = [
        (ann.http, f"/api/v1/jobs/{job}/files/model.pt"),
        (ann.http, f"/api/v1/jobs/{job}/trained-model"),
        (ann.http, f"/api/2.0/mlflow-artifacts/artifacts/{job}/model.pt"),
        (browser, f"/api/v1/jobs/{job}/files/model.pt"),
        (basic, f"/v1/models/{job}/trained_model"),
        (other.http, f"/api/v1/jobs/{job}/files/model.pt"),
    ]
    with ExitStack() as opened:
        answers = [opened.enter_context(client.stream("GET", path)) for client, path in downloads]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert _watched(api) == 6, "no client has read any of it, so none is complete"
        assert root.http.patch(f"/api/v1/users/{ann.name}", json={"disabled": True}).status_code == 200
        while _watched(api) > 1:
            time.sleep(0.02)
        for answer in answers[:5]:
            with pytest.raises(httpx.RemoteProtocolError):
                answer.read()
        assert len(answers[5].read()) == _LARGE, "another member's goes on"


def test_a_download_goes_on_while_its_token_lives(api: Api, ann: Person) -> None:
    """Also while the server keeps querying Postgres, and after another token of the same user has ended."""
    job = ann.submit()["id"]
    api.context.objects.put(results_prefix(ann.project_id, job) + "model.pt", bytes(_LARGE))
    second = ann.http.post("/api/v1/tokens", json={"name": "second"}).json()["token"]
    path = f"/api/v1/jobs/{job}/files/model.pt"
    with ann.http.stream("GET", path) as first, api.client(second).stream("GET", path) as answer:
        assert _watched(api) == 2
        with api.context.database.transaction() as session:
            mine = update(Token).where(Token.user_id == ann.user_id, Token.name == "second")
            session.execute(mine.values(expires_at=func.now()))
        while _watched(api) > 1:
            time.sleep(0.02)
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        assert len(first.read()) == _LARGE


def _watched(api: Api) -> int:
    return sum(map(len, list(SIGN_INS.of(api.context)._watched.values())))
