"""Access to Ray clusters: wrong, missing and renewed tokens, and clusters that require none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.ray.cluster import RayCluster
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


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[RayCluster]:
    with RayCluster(token=False) as running:
        yield running


def test_a_ray_that_asks_for_no_token_is_refused(open_cluster: RayCluster) -> None:
    bench = Bench(open_cluster, token=None)
    run = bench.run("echo ready")
    for ask in (
        bench.engine.observe,
        bench.engine.capacity,
        run.launch,
        lambda: bench.engine.stop(run.name, timedelta(0)),
        bench.new_engine(token="any").observe,
    ):
        with pytest.raises(EngineUnreachable, match=r"answers without a token.*allow_without_token"):
            ask()
    assert not open_cluster.jobs()
    allowed = bench.new_engine(allow_without_token=True)
    run.launch(allowed)
    bench.engine = allowed
    assert [learner.exit_code for learner in run.ended().values()] == [0]
    run.stop()
    run.forgotten()
    bench.close()
