from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ray.cluster import RayCluster
from tests.workers.engines.ray.bench import Bench


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster of one node that a module's tests share; what they add to it they take away."""
    with RayCluster(cpus=2, resources={"few": 1}) as running:
        yield running


@pytest.fixture
def bench(cluster: RayCluster) -> Iterator[Bench]:
    made = Bench(cluster)
    yield made
    made.close()
