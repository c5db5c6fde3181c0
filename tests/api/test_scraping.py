"""The right to read the API's own metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from tests.api.conftest import Api, Person, code_of

from weft_api.app import create_app
from weft_core.settings import Settings, TelemetrySettings


@pytest.fixture(scope="module")
def with_token(api_settings: Settings) -> Iterator[Api]:
    telemetry = TelemetrySettings(metrics_token=SecretStr("prometheus-s-own"))
    running = Api(api_settings.model_copy(update={"telemetry": telemetry}))
    yield running
    running.stop()


def test_without_a_token_this_machine_alone_is_answered(api: Api, api_settings: Settings) -> None:
    assert "weft_jobs" in api.client().get("/metrics").text
    with TestClient(create_app(api_settings), client=("203.0.113.7", 50_000)) as elsewhere:
        refused = elsewhere.get("/metrics")
        assert (refused.status_code, code_of(refused)) == (403, "forbidden")
        assert "set telemetry.metrics_token" in refused.json()["detail"]
        assert elsewhere.get("/healthz").status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_a_proxy_on_this_machine_opens_nothing(api: Api, header: str) -> None:
    assert api.client().get("/metrics", headers={header: "203.0.113.7"}).status_code == 403


def test_with_a_token_it_is_needed_everywhere_and_enough_anywhere(with_token: Api, ann: Person) -> None:
    client = with_token.client()
    for given in (b"", b"Bearer prometheus", f"Bearer {ann.token}".encode(), "Bearer ünïcode".encode()):
        refused = client.get("/metrics", headers=[(b"Authorization", given)])
        assert (refused.status_code, code_of(refused)) == (401, "unauthenticated")
        assert "s-own" not in refused.text
    right = {"Authorization": "Bearer prometheus-s-own", "X-Forwarded-For": "203.0.113.7"}
    assert "weft_jobs" in client.get("/metrics", headers=right).text


def test_the_token_opens_nothing_else(with_token: Api) -> None:
    client = with_token.client()
    given = {"Authorization": "Bearer prometheus-s-own"}
    assert client.get("/api/v1/jobs", headers=given).status_code == 401
