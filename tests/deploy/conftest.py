"""Fixtures of the chart's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.chart import CASES, Rendered, render
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import kube, python_image
from tests.servers import Servers

__all__ = ["kube", "python_image"]

HERE = Path(__file__).parent


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest) -> Rendered:
    """The chart with the values of each case."""
    return render(CASES[request.param])


@pytest.fixture(scope="session")
def releases(
    kube: Cluster, servers: Servers, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    """What the files' ``begin`` installs on the cluster, all at once, as most of it is waiting for pods. Called with a
    file's name, waits for what it yields. Its end is on all at once, too."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path.parent == HERE]
    modules = {item.module for item in items if hasattr(item.module, "begin")}
    # A new image may start each node's containerd anew: better now than while pods begin.
    for image in sorted({name for item in items for name in item.fixturenames if name.endswith("_image")}):
        request.getfixturevalue(image)
    for image in dict.fromkeys(image for module in modules for image in module.IMAGES):
        image(kube)
    with ThreadPoolExecutor() as pool:
        stacks = {module.__name__: ExitStack() for module in modules}
        running = {
            module.__name__.rpartition(".")[2]: pool.submit(
                stacks[module.__name__].enter_context, module.begin(kube, servers, tmp_path_factory.mktemp("release"))
            )
            for module in modules
        }
        yield lambda name: running[name].result()
        for future in running.values():
            future.exception()
        for ended in [pool.submit(stack.close) for stack in stacks.values()]:
            ended.result()
