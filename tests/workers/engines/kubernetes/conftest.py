from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import kube  # noqa: F401 - a fixture
from tests.workers.engines.kubernetes.bench import STANDIN, STANDIN_IMAGE, STORIES, KubeBench, Story


@pytest.fixture(scope="session")
def standin(kube: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: F811
    """An image whose `python` runs the script that the API's URL carries."""
    mark = hashlib.sha256(STANDIN.encode()).hexdigest()[:16]
    if not kube.has_image(STANDIN_IMAGE, mark):
        program = tmp_path_factory.mktemp("standin") / "python"
        program.write_text(STANDIN)
        program.chmod(0o755)
        kube.image(STANDIN_IMAGE, "--copy", f"{program}:/bin/python")
        kube.mark_image(STANDIN_IMAGE, mark)
    return STANDIN_IMAGE


@pytest.fixture
def bench(kube: Cluster, standin: str, tmp_path: Path) -> Iterator[KubeBench]:  # noqa: F811
    """Engines in a namespace of its own on the real cluster."""
    with KubeBench.opened(kube, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def begun(
    kube: Cluster,  # noqa: F811
    standin: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Story], None]]:
    """Begins the module's tests that are :func:`together`, four at a time; called with such a test, waits for it."""
    chosen = {item.name for item in request.session.items if item.path == request.path}

    def play(story: Story, folder: Path) -> None:
        with KubeBench.opened(kube, folder) as made:
            story(made)

    with ThreadPoolExecutor(4) as pool:
        stories = [story for story in STORIES[request.module.__name__] if story.__name__ in chosen]
        running = {story: pool.submit(play, story, tmp_path_factory.mktemp("story")) for story in stories}
        yield lambda story: running[story].result()
