"""``weft run`` names the packages to install when they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Weft


def test_run_without_the_extra_says_what_to_install(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "manifest.yml").write_text("name: a\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = weft("run", str(tmp_path / "manifest.yml"), "--no-code")
    assert done.code == 1
    assert "pip install 'weft[run]'" in done.err
