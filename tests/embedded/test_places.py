"""The result of `make setup` works wherever it is moved: each case starts everything there and trains a job."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.stack import manifest
from tests.embedded.places import FORBID_NAMESPACES, USER, Checkout, Visitor, as_ordinary_user
from tests.environments import FIRST_RUN

pytestmark = pytest.mark.timeout(FIRST_RUN)

for_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can make this place")

NOBODY = pwd.getpwnam("nobody").pw_uid
HELLO = """
import os, pathlib
pathlib.Path(os.environ["RESULT_DIR"], "model").write_text("trained")
print("hello from", pathlib.Path.cwd())
"""


@pytest.fixture(scope="module")
def checkout() -> Iterator[Checkout]:
    # Not in pytest's folder: only root may enter that, and its path would be too long for sockets.
    scratch = Path(tempfile.mkdtemp(prefix="weft-places-", dir="/tmp"))
    scratch.chmod(0o755)
    yield Checkout(scratch / "weft")
    shutil.rmtree(scratch)


@pytest.fixture
def scratch(checkout: Checkout) -> Iterator[Path]:
    """Where a test makes its place; the checkout is brought out of it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="weft-place-", dir="/tmp"))
    folder.chmod(0o755)
    begin = checkout.path
    yield folder
    checkout.own_folders(os.geteuid(), 0o755)  # a folder that may not be written into can't be moved, either
    checkout.move(begin)
    shutil.rmtree(folder)


def train(visitor: Visitor, *, home: Path | None = None, umask: str = "022") -> dict[str, list[int]]:
    """Start Weft, train, look at the log, fetch the model, end Weft; returns as whom Postgres ran (see `owners`)."""
    flags = ["--home", str(home)] if home is not None else []
    job = visitor.home / "my job"
    job.mkdir()
    (job / "train.py").write_text(HELLO)
    (job / "manifest.yml").write_text(yaml.safe_dump(manifest("python train.py")))
    os.chown(job, visitor.home.stat().st_uid, -1)

    def weft(*words: str) -> str:
        return visitor.run("weft", *words, umask=umask)

    assert str(visitor.checkout.path) in visitor.run("python", "-c", "import weft_core; print(weft_core.__file__)")
    weft("up", "--detach", "--port", "0", *flags)
    try:
        status = json.loads(weft("status", "--json", *flags))
        assert {part["state"] for part in status["parts"]} == {"running"}
        postgres = next(part["pid"] for part in status["parts"] if part["name"] == "postgres")
        identity = owners(postgres, Path(status["home"]) / "postgres")
        weft("data", "create", "default:results")
        assert "COMPLETED" in weft("train", str(job / "manifest.yml"), "--follow")
        assert "hello from" in weft("logs", "@last")
        weft("download", "@last", "--trainedmodel", "--unpack", "-o", str(job / "out"))
        assert [path.read_text() for path in (job / "out").rglob("model")] == ["trained"]
    finally:
        weft("down", *flags)
    return identity


def owners(pid: int, data: Path) -> dict[str, list[int]]:
    """The users of a process outside and inside its user namespace, and the owner of its data."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    maps = [[int(word) for word in line.split()] for line in Path(f"/proc/{pid}/uid_map").read_text().splitlines()]
    return {
        "process": [int(status["Uid"].split()[0])],
        "called": [inside for inside, _, count in maps if count == 1],
        "data": [data.stat().st_uid],
    }


def test_roots_own_home_with_a_read_only_checkout_that_was_made_under_umask_077(
    checkout: Checkout, scratch: Path
) -> None:
    home = scratch / "root"
    home.mkdir(mode=0o700)
    checkout.move(home / "weft")
    is_root = os.geteuid() == 0
    checkout.own_folders(os.geteuid(), 0o700 if is_root else 0o500)
    before = files(checkout.path)
    # Modes do not stop root.
    place = shlex.quote(str(checkout.path))
    prelude = f"mount --bind {place} {place}; mount -o remount,bind,ro {place}" if is_root else ""
    state = home / "state"
    identity = train(Visitor(home, checkout, prelude=prelude, own_environments=True), home=state, umask="077")
    if is_root:
        assert identity == {"process": [0], "called": [NOBODY], "data": [0]}
    assert state.stat().st_mode & 0o077 == 0, "whatever the modes of the files in it"
    assert files(checkout.path) == before
    assert not (home / ".weft").exists()


@for_root
def test_a_folder_that_only_root_may_enter_in_a_container_that_forbids_user_namespaces(
    checkout: Checkout, scratch: Path
) -> None:
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    checkout.move(closed / "weft")
    visitor = Visitor(closed, checkout, become=(sys.executable, str(FORBID_NAMESPACES)))
    assert train(visitor) == {"process": [NOBODY], "called": [], "data": [NOBODY]}


def test_an_ordinary_users_home_with_spaces_in_its_path(checkout: Checkout, scratch: Path) -> None:
    home = scratch / "Jane Doe's home, 100 % hers"
    home.mkdir(mode=0o700)
    checkout.move(home / "my weft")
    if os.geteuid() != 0:
        user = os.geteuid()
        visitor = Visitor(home, checkout, own_environments=True)
    else:
        user = USER
        prelude, become = as_ordinary_user(scratch)
        visitor = Visitor(home, checkout, prelude=prelude, become=become, own_environments=True)
        checkout.own_folders(user, 0o755)
        os.chown(home, user, user)
    assert train(visitor) == {"process": [user], "called": [], "data": [user]}
    assert (home / ".weft").stat().st_mode & 0o077 == 0


def files(folder: Path) -> set[Path]:
    return {Path(there, name) for there, _, names in os.walk(folder) for name in names}
