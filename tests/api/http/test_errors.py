"""Refusals that a client may provoke as fast as they come."""

from __future__ import annotations

import time

import pytest
from tests.api.conftest import Api, code_of

from weft_api.http import errors


def test_who_sends_too_much_waits_for_the_refusal_and_nobody_else_does(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = api.attempt(api.person().submit()["id"])
    agent = attempt.agents[0]
    agent.start()
    values = {f"metric-{number}": 1.0 for number in range(20_001)}
    record = {"t": 0, "kind": "user", "group": "", "values": values}
    body = {"rank": 0, "instance": agent.instance, "sequence": 0, "records": [record]}
    monkeypatch.setattr(errors, "_PAUSE", 0.3)
    begun = time.monotonic()
    with api.client(attempt.token) as client:
        refused = client.post("/api/v1/learner/metrics", json=body)
    assert (refused.status_code, code_of(refused)) == (413, "too_large")
    assert time.monotonic() - begun >= 0.3
    monkeypatch.setattr(errors, "_PAUSE", 3600.0)
    assert api.client("weft_u_unknown").get("/api/v1/me").status_code == 401
