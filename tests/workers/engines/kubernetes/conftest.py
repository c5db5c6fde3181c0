from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.fixtures import kube  # noqa: F401 - a fixture
from tests.workers.engines.kubernetes.bench import STANDIN, STANDIN_IMAGE, KubeBench


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
def bench(kube: Cluster, standin: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KubeBench]:  # noqa: F811
    """Engines in a namespace of its own on the real cluster."""
    made = KubeBench(kube, tmp_path)
    with kube.namespace(made.namespace):
        yield made
        made.close()
