"""``python -m weft_workers`` as a process: Celery's way, its sweeper, and how they end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from pydantic import SecretStr
from sqlalchemy import text
from tests.servers import free_port
from tests.trainer.agents import ended
from tests.workers.test_sweeper import until
from tests.workers.world import World

from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.wake import Wake
from weft_embedded.servers import RedisServer
from weft_workers import sweeper
from weft_workers.process import BadSettings, open_context, read_settings, wait_for_installation

_SELDOM = 1000.0  # seconds between sweeps: what happens before is Celery's work


def environment(settings: Settings, sweep: float) -> dict[str, str]:
    """The settings as a process gets them."""
    return {
        **os.environ,
        "WEFT_HOME": str(settings.home),
        "WEFT_DATABASE_URL": settings.database_url.get_secret_value(),
        "WEFT_REDIS_URL": settings.redis_url.get_secret_value(),
        "WEFT_SECRET_KEYS": settings.secret_keys[0].get_secret_value(),
        "WEFT_S3__ENDPOINT": settings.s3.endpoint,
        "WEFT_TIMINGS__SWEEP": str(sweep),
    }


@contextlib.contextmanager
def worker(settings: Settings, folder: Path, sweep: float, **more: str) -> Iterator[psutil.Popen]:
    """A running worker; nothing of it is left afterwards."""
    with (folder / "worker.log").open("ab") as log:
        process = psutil.Popen(
            [sys.executable, "-m", "weft_workers", "--concurrency", "1"],
            env=environment(settings, sweep) | more,
            stdout=log,
            stderr=log,
        )
    family: list[psutil.Process] = [process]
    try:
        yield process
    finally:
        if process.is_running():
            family += process.children(recursive=True)
        for member in family:
            if member.is_running():
                member.kill()
        psutil.wait_procs(family, 300)


def sweepers(process: psutil.Popen) -> list[psutil.Process]:
    found = []
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # also: a zombie
            if child.name() == sweeper.NAME:
                found.append(child)
    return found


def probe(world: World) -> str:
    """A job that no engine can take: a reason on it shows that somebody stepped it."""
    return world.submit(engine="cloud")


def stepped(world: World, job: str) -> bool:
    return "engine 'cloud' is not in the settings" in world.job(job).reason


def test_hints_reach_a_worker_and_sigterm_ends_it_and_its_sweeper(
    world: World, settings: Settings, tmp_path: Path
) -> None:
    port = free_port()
    with worker(settings, tmp_path, _SELDOM, WEFT_TELEMETRY__METRICS_PORT=str(port)) as process:
        until(lambda: len(sweepers(process)) == 1)
        first = probe(world)
        world.context.wake.job(first)
        until(lambda: stepped(world, first))
        # By now the sweeper has had its one sweep, or has it before the next job.
        until(lambda: "sweeping" in (tmp_path / "worker.log").read_text())
        second = probe(world)
        world.context.wake.job(second)
        until(lambda: stepped(world, second))
        # The work of the pool's processes, as the main process reports it; it counts after its end and its last write.
        counted = re.compile(r'weft_admission_pass_seconds_count\{engine="cloud"\} [1-9]')
        until(lambda: counted.search(httpx.get(f"http://127.0.0.1:{port}/metrics").text) is not None)

        family = [process, *process.children(recursive=True)]
        assert len(family) >= 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        until(lambda: all(ended(member.pid) for member in family))
    assert "Traceback" not in (tmp_path / "worker.log").read_text()


def test_the_sweeper_is_started_again_and_dies_with_a_killed_worker(
    world: World, settings: Settings, tmp_path: Path
) -> None:
    with worker(settings, tmp_path, 0.2) as process:
        until(lambda: len(sweepers(process)) == 1)
        (killed,) = sweepers(process)
        killed.kill()
        until(lambda: sweepers(process) not in ([], [killed]))
        job = probe(world)  # without a hint
        until(lambda: stepped(world, job))

        until(lambda: len(process.children()) >= 2)
        family = process.children(recursive=True)
        process.kill()
        until(lambda: all(ended(member.pid) for member in family))


def test_redis_is_killed_and_comes_back(world: World, settings: Settings, tmp_path: Path, short: Path) -> None:
    redis = RedisServer(short, short, short, short / "redis.log")
    redis.start()
    mine = settings.model_copy(update={"redis_url": SecretStr(redis.url)})
    wake = Wake(redis.url)
    try:
        with worker(mine, tmp_path, 0.2):
            first = probe(world)
            wake.job(first)
            until(lambda: stepped(world, first))
            redis.stop()
            second = probe(world)
            wake.job(second)
            until(lambda: stepped(world, second))
            redis.start()
            # Celery comes back by itself: the queue is emptied again.
            third = probe(world)
            until(lambda: wake.ping())
            wake.job(third)
            until(lambda: stepped(world, third))
            until(lambda: wake._redis.llen("weft") == 0)
    finally:
        wake.close()
        redis.stop()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="weft-workers-", dir="/tmp") as name:
        yield Path(name)


def test_bad_settings_are_one_readable_line(world: World, settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weft_workers"],
        env={**environment(settings, _SELDOM), "WEFT_SECRET_KEYS": "hush-hush"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("weft worker: secret_keys: a key must be 32 bytes")
    assert "hush" not in line


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WEFT_DEFAULT_ENGINE", "moon", "settings: default_engine 'moon' is none of: local"),
        ("WEFT_TIMINGS__SWEEP", "often", "timings.sweep: Input should be a valid number"),
        ("WEFT_SECRET_KEYS", "", "secret_keys is empty"),
        ("WEFT_ENGINES", '{"local": {"type": "rai"}}', "engines.local.type: expected one of: local, ray, kubernetes"),
        (
            "WEFT_ENGINES",
            '{"local": {"type": "local", "token": "hush"}}',
            "engines.local.token: no such key; there are: ",
        ),
        ("WEFT_REDIS_URL", "http://redis", "redis_url: Redis URL must specify one of"),
        ("WEFT_DATABASE_URL", "hush@nowhere", "database_url: is not of the form postgresql://"),
        ("WEFT_DATABASE_URL", "mysql://me:hush@host/weft", "database_url: is not of the form postgresql://"),
        ("WEFT_CONFIG", "tests/workers/test_worker.py", "settings: "),
    ],
)
def test_every_bad_setting_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    for key, good in environment(settings, _SELDOM).items():
        monkeypatch.setenv(key, good)
    monkeypatch.setenv(name, value)

    def start() -> None:
        read = read_settings()
        if name == "WEFT_DATABASE_URL":
            wait_for_installation(read, 0)
        open_context(read, "inst-test", connections=1).close()

    with pytest.raises(BadSettings, match=re.escape(said)) as raised:
        start()
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("change", ["delete from installation", "drop table installation"])
def test_a_database_that_was_not_migrated_is_waited_for(settings: Settings, database: Database, change: str) -> None:
    with database.transaction() as session:
        session.execute(text(change))
    with pytest.raises(TimeoutError, match=r"run `python -m weft_core\.store\.migrate upgrade`"):
        wait_for_installation(settings, 0)
