"""Fixtures for all tests: real servers, started once a session when first asked for.

A server dies with pytest, even when pytest is killed.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
import redis
from cryptography.fernet import Fernet
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr
from sqlalchemy import Engine, create_engine, event
from tests.environments import FIRST_RUN
from tests.servers import Servers

from weft_core.settings import S3Settings, Settings
from weft_core.store.database import Database

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster

# How `make test` spreads tests: those that share a cluster or a stack stay together, and the slowest begin first.
_TOGETHER = ("kubernetes", "training", "e2e", "ray", "engines-ray", "dashboard", "gpu")
_LONG = "security/test_schemathesis.py"
"""One test of minutes, which would run alone at the end."""
_IN_TURN = "programs"
"""A folder whose files build packages into one place, one after another: minutes of processor time in one process."""
_TRAINING = ("test_elastic", "test_examples", "test_image_examples", "test_imagenet_resnet50")
"""Files of tests/e2e whose jobs train with a framework: half of the work there, on a stack of their own."""
_OF_A_FOLDER = ("releases", "on_kube", "bench")
"""Fixtures of the whole session that one folder uses: releases; a stack; an engine with a run that stands."""
_SLOW = ("deploy", "embedded", "engines", "examples", "faults", "trainer", "trainer_images", "workers")
"""Folders whose tests start stacks, installations or learners. A slow test of another folder has the mark itself."""
_CONTAINERS = Path(__file__).parent / "containers"
"""Root or a group's right to a container engine, 15 GB, and half an hour."""

# How long an example takes says how busy the machine is.
hypothesis_settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("busy")


gc.disable()  # until all tests are imported: a quarter of the processor time of imports


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests that need more of a machine than `make test` are collected only when named (`make test-containers`)."""
    if collection_path != _CONTAINERS:
        return None
    named = (Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args)
    return None if any(path.resolve().is_relative_to(_CONTAINERS) for path in named) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """One process collects first, and stores the bytecode of the tests, which pytest rewrites. Then the others collect.
    On a new clone, every process would rewrite all files: half as much processor time again."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say which tests may not be run beside each other (pytest-xdist's groups); without ``-n`` the order stays.

    Mark the tests that ``make test-fast`` and ``make coverage`` leave out: see the markers in pyproject.toml.
    """
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
        if group in _TOGETHER and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FIRST_RUN))
        timeout = item.get_closest_marker("timeout")
        if group in _TOGETHER or (timeout is not None and timeout.args == (FIRST_RUN,)):
            item.add_marker(pytest.mark.heavy)
        if item.path.relative_to(Path(__file__).parent).parts[0] in _SLOW:
            item.add_marker(pytest.mark.slow)
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        order = {group: place for place, group in enumerate((*_TOGETHER, _LONG, _IN_TURN))}
        items.sort(key=lambda item: order.get(groups[item], len(order)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector of garbage from what the imports have made: it took 0.2 s of a core for a look at all of it.
    It was off meanwhile.

    Without its groups pytest-xdist runs two stacks on one cluster, and says nothing (pytest-xdist issue 1386)."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 2, 250)  # as in the processes that the tests are of: a tenth less processor time
    if hasattr(session.config, "workerinput") and session.config.getoption("dist") == "loadgroup":
        for item in session.items:
            if not item.nodeid.endswith(f"@{_group(item)}"):
                raise pytest.UsageError(f"pytest-xdist left the group off {item.nodeid}: see requirements/")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """With the last test of a group its cluster or stack goes, and with the last test of a folder what only this folder
    uses: a stack that idles still takes a part of a core."""
    if nextitem is None or _group(item) not in _TOGETHER:
        return
    if _group(nextitem) != _group(item):
        item.session._setupstate.teardown_exact(None)  # as after the last test of all; no public call does this
    elif item.path.parent != nextitem.path.parent:
        for name in _OF_A_FOLDER:
            for definition in item.session._fixturemanager._arg2fixturedefs.get(name, ()):
                if definition.scope == "session":
                    definition.finish(cast(Any, item)._request)  # those that depend on it end first


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config))


class _AtOnce:
    """Shows the failure of a test at once, not at the end of an hour; also that of a test which is run once more
    (`make test`), as there is a fault to find even if it passes then."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome not in ("failed", "rerun"):
            return
        terminal = self._config.get_terminal_writer()
        terminal.line()
        terminal.sep("_", f"{report.outcome.upper()}: {report.nodeid} ({report.when}, {report.duration:.0f} s)")
        terminal.line(report.longreprtext)


def _group(item: pytest.Item) -> str:
    kind = item.callspec.params.get("bench") if hasattr(item, "callspec") else None
    path = item.path.relative_to(Path(__file__).parent)
    if kind == "kubernetes" or "kube" in getattr(item, "fixturenames", ()) or path.parts[0] == "kubernetes":
        return "kubernetes"
    if kind == "ray":
        return "engines-ray"
    if "ray" in path.parts or path.stem == "test_ray_launcher":
        return "ray"
    if path.parts[0] == "e2e" and path.stem in _TRAINING:
        return "training"
    return path.parts[0] if path.parts[0] in (*_TOGETHER, _IN_TURN) else str(path)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The developer's own WEFT_… variables, weft.toml and CLI profile are none of the tests' business."""
    saved = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(("WEFT_", "DLAAS_", "AWS_"))}
    saved |= {name: os.environ.pop(name) for name in ("COLUMNS", "LINES") if name in os.environ}  # as xdist sets them
    nowhere = tmp_path_factory.mktemp("nowhere")
    os.environ["WEFT_CONFIG"] = str(nowhere / "weft.toml")
    os.environ["WEFT_PROFILE_FILE"] = str(nowhere / "config.toml")
    yield
    del os.environ["WEFT_CONFIG"], os.environ["WEFT_PROFILE_FILE"]
    os.environ.update(saved)


@pytest.fixture(scope="session", autouse=True)
def _one_ssl_context() -> Iterator[None]:
    """httpx would read all certificates of the machine for each client: 20 ms of a core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", functools.cache(httpx.create_ssl_context))
        yield


class _Engines:
    """Makes SQLAlchemy's engines, which share the texts of statements. Most tests have an engine of their own, and
    spent half of their processor time on texts that other tests had needed, too."""

    def __init__(self) -> None:
        self._first: Engine | None = None

    def __call__(self, url: str, **options: Any) -> Engine:
        engine = create_engine(url, **options)
        if self._first is None:
            event.listen(engine, "connect", lambda *_: self._keep(engine), once=True)
        else:  # the texts belong to a dialect
            engine.dialect, engine._compiled_cache = self._first.dialect, self._first._compiled_cache
        return engine

    def _keep(self, engine: Engine) -> None:
        """Now that its dialect knows the server."""
        self._first = self._first or engine


@pytest.fixture(scope="session", autouse=True)
def _one_cache_of_statements() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft_core.store.database.create_engine", _Engines())
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The session's servers (see :class:`tests.servers.Servers`), for fixtures of another scope than the ones below."""
    running = Servers()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_url(servers: Servers) -> Iterator[str]:
    """A database with the newest schema that lives as long as the session."""
    with servers.database_url() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(servers: Servers) -> str:
    return servers.redis.url


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray cluster of one node, for all tests that leave it as they found it."""
    from tests.ray.cluster import RayCluster

    with RayCluster(cpus=4, memory=16 << 30, resources={"few": 1, "slot": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def s3(servers: Servers) -> S3Settings:
    """A fresh bucket for each test module."""
    return servers.bucket()


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """The URL of an empty database with the newest schema, for this test alone."""
    with servers.database_url() as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An empty database with the newest schema, for this test alone."""
    opened = Database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def settings(database_url: str, redis_url: str, s3: S3Settings, tmp_path: Path) -> Settings:
    """Settings wired to an empty database, an empty Redis and this module's bucket."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return Settings(
        home=tmp_path / "home",
        database_url=SecretStr(database_url),
        redis_url=SecretStr(redis_url),
        secret_keys=[SecretStr(Fernet.generate_key().decode())],
        s3=s3,
    )
