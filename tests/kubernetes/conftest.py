"""One stack on the cluster for all tests of this folder that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import horovod_image, kube, python_image, ray_image
from tests.kubernetes.stack import KubeStack, kube_stack

__all__ = ["horovod_image", "kube", "python_image", "ray_image"]


@pytest.fixture(scope="session")
def on_kube(kube: Cluster, python_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeStack]:
    """A stack with the cluster as its engine `kubernetes`. At its end nothing of any job may be on the cluster; looked
    at once for all, as the objects of ended pods take their time to go."""
    with kube_stack(kube, tmp_path_factory.mktemp("kube") / "home") as started:
        yield started
        started.end()
