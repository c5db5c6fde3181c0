from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ray.cluster import RayCluster
from tests.workers.engines.ray.bench import Bench


@pytest.fixture
def bench(ray_cluster: RayCluster) -> Iterator[Bench]:
    made = Bench(ray_cluster)
    yield made
    made.close()
