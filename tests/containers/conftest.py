"""Fixtures of the tests on a real container engine: one engine, the service images, and a composed service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers.composed import Composed
from tests.containers.engine import Engine

API, WORKER = "weft/api:test", "weft/worker:test"
_HOURS = 2 * 3600
_ENGINE = Engine()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_HOURS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sizes and times; docs/containers.md takes its numbers from here."""
    if _ENGINE.findings:
        terminalreporter.write_sep("=", "containers")
        for what, value in _ENGINE.findings:
            terminalreporter.write_line(f"{what:60} {value}")


@pytest.fixture(scope="session")
def engine() -> Engine:
    return _ENGINE


@pytest.fixture(scope="session")
def api_image(engine: Engine) -> str:
    engine.build("deploy/docker/api.Dockerfile", API)
    return API


@pytest.fixture(scope="session")
def worker_image(engine: Engine) -> str:
    engine.build("deploy/docker/worker.Dockerfile", WORKER)
    return WORKER


@pytest.fixture(scope="module")
def composed(
    engine: Engine, api_image: str, worker_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Composed]:
    """A service of docker-compose.yml with nothing in it yet; it and its volumes are gone at the end."""
    service = Composed(engine, tmp_path_factory.mktemp("composed"), api_image, worker_image)
    try:
        yield service
    finally:
        service.remove()
