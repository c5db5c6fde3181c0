"""One stack on the cluster for all tests of this folder, which leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import horovod_image, kube, python_image, ray_image
from tests.kubernetes.stack import KubeStack, kube_stack
from tests.workers.engines.kubernetes.conftest import standin

__all__ = ["horovod_image", "kube", "python_image", "ray_image", "standin"]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def on_kube(
    kube: Cluster, python_image: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeStack]:
    """A stack with the cluster as its engine `kubernetes`. The jobs that a file's ``begin`` starts are begun with the
    stack, those of all files together: most of their time is waiting for pods. At the end nothing of any job may be on
    the cluster; looked at once for all, as the objects of ended pods take their time to go."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path.parent == HERE]
    # A new image may start each node's containerd anew: better now than while pods begin.
    for image in sorted({name for item in items for name in item.fixturenames if name.endswith("_image")}):
        request.getfixturevalue(image)
    with kube_stack(kube, tmp_path_factory.mktemp("kube") / "home") as started, ExitStack() as opened:
        for module in dict.fromkeys(item.module for item in items):
            if begin := getattr(module, "begin", None):
                folder = tmp_path_factory.mktemp(module.__name__.rpartition(".")[2])
                started.begun |= opened.enter_context(begin(started, folder))
        yield started
        started.end()
