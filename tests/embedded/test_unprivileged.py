"""The user that PostgreSQL runs as when root starts it, and how its data folder passes from one user to another."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.stack import REPOSITORY
from tests.embedded.places import FORBID_NAMESPACES

from weft_embedded.servers import PostgresServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root has to become somebody else")

NOBODY = pwd.getpwnam("nobody").pw_uid
FORBIDDEN = (sys.executable, str(FORBID_NAMESPACES))
ROOT_ALONE = ("unshare", "--user", "--map-root-user")  # a container without a range of user ids

# Starts it on a folder, counts how often it was started there, and stops it; prints the count and the way.
VISIT = """
import sys
from pathlib import Path
from weft_embedded.part import PartError
from weft_embedded.servers import PostgresServer

folder = Path(sys.argv[1])
server = PostgresServer(folder / "data", folder, folder, folder / "log")
try:
    server.start()
except PartError as error:
    sys.exit(str(error))
with server.connect() as connection:
    connection.execute("create table if not exists visits (at timestamptz default now())")
    connection.execute("insert into visits default values")
    print(connection.execute("select count(*) from visits").fetchone()[0], server.way)
if sys.argv[2:] == ["crash"]:
    server.process.kill()
    server.process.wait()
else:
    server.stop()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that only root may enter."""
    path = Path(tempfile.mkdtemp(prefix="weft-pg-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def visit(folder: Path, *how: str, crash: bool = False) -> str:
    words = ["crash"] if crash else []
    done = subprocess.run(
        [*how, sys.executable, "-c", VISIT, str(folder), *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).strip()


def owners(data: Path) -> set[int]:
    return {path.lstat().st_uid for path in [data, *data.rglob("*")]}


def test_data_of_nobody_stays_nobodys(folder: Path) -> None:
    """As the data of homes that were made before there was the way by a namespace."""
    assert visit(folder, *FORBIDDEN) == "1 nobody"
    assert owners(folder / "data") == {NOBODY}
    assert visit(folder) == "2 nobody"
    assert owners(folder / "data") == {NOBODY}


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_data_is_handed_over_where_namespaces_are_forbidden(folder: Path, crash: bool) -> None:
    assert visit(folder, crash=crash) == "1 namespace"
    assert owners(folder / "data") == {0}
    assert visit(folder, *FORBIDDEN, crash=crash) == "2 nobody"
    assert owners(folder / "data") == {NOBODY}


def test_data_is_handed_over_where_there_is_no_nobody_to_become(folder: Path) -> None:
    assert visit(folder, *ROOT_ALONE) == "1 namespace"
    assert owners(folder / "data") == {0}


def test_where_neither_works_it_says_why(folder: Path) -> None:
    no_more = ("sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh")
    said = visit(folder, *ROOT_ALONE, *no_more)
    assert said.startswith(
        "PostgreSQL refuses to run as root, and root can't start it as somebody else here (in a user"
    )
    assert "a new user namespace: No space left on device; as nobody: " in said
    assert said.endswith("Run `weft up` as an ordinary user")
    assert not (folder / "data").exists()


def test_folders_of_other_users_are_no_hindrance(folder: Path) -> None:
    """Root in a home that an ordinary user has closed to others: only root's own right opens that."""
    os.chown(folder, 23456, 23456)
    server = PostgresServer(folder / "data", folder, folder, folder / "log")
    server.start()
    try:
        assert server.way == "nobody"
    finally:
        server.stop()
