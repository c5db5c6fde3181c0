"""``weft secrets`` and ``weft datastores`` read secret values from stdin; ``weft tokens`` prints a new token."""

from __future__ import annotations

import io
import sys

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import Double, as_json

from weft.exits import ExitCode


def test_secrets_come_by_stdin(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("PUT", "secrets/wandb", as_json({"name": "wandb"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    done = weft("secrets", "set", "wandb")
    assert done.code == 0
    assert double.seen[0].json == {"value": "two\nlines"}
    assert weft("secrets", "set", "wandb", "value").code == ExitCode.USAGE
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert weft("secrets", "set", "wandb").code == 1


def test_datastores_and_tokens(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"name": "cos", "endpoint": "http://s3.test", "region": None, "user_name": "key"}
    double.on("POST", "datastores", as_json(made, 201))
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    done = weft("datastores", "add", "cos", "--endpoint", "http://s3.test", "--user-name", "key", "--no-check")
    assert done.code == 0
    sent = double.seen[0]
    assert sent.json == {"name": "cos", "endpoint": "http://s3.test", "user_name": "key", "password": "secret"}
    assert sent.query == {"check": ["false"]}
    double.on("GET", "datastores", as_json({"datastores": [made]}))
    assert "http://s3.test" in weft("datastores", "list").out
    token = {"id": "tok-1", "name": "ci", "prefix": "weft_u_ab", "token": "weft_u_abcdef"}
    double.on("POST", "tokens", as_json(token, 201))
    assert weft("tokens", "create", "ci", "--days", "3").out == "weft_u_abcdef\n"
    assert double.seen[-1].json == {"name": "ci", "expires_in_days": 3}
