"""``weft version`` prints the client's version even when no server answers."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Weft


def test_version_answers_without_a_server(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_URL", "http://127.0.0.1:9")
    done = weft("version")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("client")
    assert "can't reach Weft" in done.err
    assert json.loads(weft("version", "--json").out)["server"] is None
