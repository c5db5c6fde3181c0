"""Fixtures that every test of the real cluster shares; a conftest imports what it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.kubernetes import images
from tests.kubernetes.cluster import MISSING, NOT_ROOT, Cluster, find_cluster


@pytest.fixture(scope="session")
def kube() -> Iterator[Cluster]:
    """The real cluster with two nodes; where there is none, its tests are reported as not run."""
    cluster = find_cluster()
    if cluster is None:
        pytest.skip(MISSING)
    if os.geteuid() != 0:
        pytest.skip(NOT_ROOT)
    cluster.up(nodes=2)
    yield cluster
    cluster.release()


@pytest.fixture(scope="session")
def python_image(kube: Cluster) -> str:
    """The trainer image `python`, on every node; beside it the agent for images of the users' own."""
    images.load_agent(kube)
    return images.load(kube, images.PYTHON)


@pytest.fixture(scope="session")
def horovod_image(kube: Cluster) -> str:
    """The trainer image `horovod` (PyTorch), on every node."""
    return images.load(kube, images.HOROVOD)


@pytest.fixture(scope="session")
def ray_image(kube: Cluster) -> str:
    """The trainer image `ray`, on every node."""
    return images.load(kube, images.RAY)
