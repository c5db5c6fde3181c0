"""One stack on the cluster for all tests of this folder that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import horovod_image, kube, python_image
from tests.kubernetes.stack import KubeStack, kube_stack

__all__ = ["horovod_image", "kube", "python_image"]


@pytest.fixture(scope="session")
def on_kube(kube: Cluster, python_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeStack]:
    """A stack with the cluster as its engine `kubernetes`."""
    with kube_stack(kube, tmp_path_factory.mktemp("kube") / "home") as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(on_kube: KubeStack) -> Iterator[None]:
    """After a module's tests nothing of its jobs may be on the cluster; looked at once, as pods take their time."""
    yield
    for job in on_kube.trained:
        if not job.refresh().is_terminal:  # its test has failed
            job.halt(grace_seconds=0)
    on_kube.trained.clear()
    on_kube.check_nothing_left()
