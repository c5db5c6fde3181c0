"""Tokens of Ray clusters: wrong, missing and renewed ones. test_growth.py has a cluster that requires none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workers.engines.ray.bench import Bench

from weft_core.engine import EngineUnreachable


def test_a_wrong_token_and_none(bench: Bench) -> None:
    with pytest.raises(EngineUnreachable, match="the token is refused"):
        bench.new_engine(token="wrong").observe()
    with pytest.raises(EngineUnreachable, match="it requires a token: set token or token_file"):
        bench.new_engine(token=None).capacity()


def test_a_token_file_is_read_anew_when_the_old_token_is_refused(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "token"
    engine = bench.new_engine(token=None, token_file=str(path))
    with pytest.raises(EngineUnreachable, match=f"the token file {path} can't be read: No such file"):
        engine.observe()
    path.write_text("yesterday's\n")
    with pytest.raises(EngineUnreachable, match="the token is refused"):
        engine.observe()
    path.write_text(bench.cluster.token + "\n")
    engine.observe()
