"""Folders that a program can't write: real mount namespaces, as root and as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft_trainer.config import RUNTIME

FORBID = Path(__file__).parents[2] / "embedded" / "forbid_namespaces.py"
ORDINARY = 12345
"""Not 65534, which the kernel shows for each user that a namespace does not know."""
USERS = [None, ORDINARY] if os.geteuid() == 0 else [None]
"""None: the tests' own user."""
_STARTER = """
import os, subprocess, sys
from pathlib import Path
from weft_trainer.machine.prctl import hide_environment
from weft_trainer.machine.sealing import Sealed, sealer
user, command, *folders = sys.argv[1:]
if user:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
hide_environment()
seal = sealer(Sealed([Path(folder) for folder in folders]))
raise SystemExit(subprocess.run(["sh", "-c", command], preexec_fn=seal, cwd="/").returncode)
"""


def run(command: str, *sealed: Path, user: int | None = None, prefix: tuple[str, ...] = ()) -> str:
    """What a sealed shell prints, perhaps of an ordinary user."""
    arguments = [*prefix, sys.executable, "-c", _STARTER, str(user or ""), command, *map(str, sealed)]
    env = {"PYTHONPATH": str(RUNTIME), "PATH": os.environ["PATH"]}
    done = subprocess.run(arguments, env=env, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to be sealed, with a file, and another folder; everybody may write into both."""
    sealed, free = tmp_path / "sealed", tmp_path / "free"
    for folder in (sealed, free):
        folder.mkdir()
        folder.chmod(0o777)
    if os.geteuid() == 0:
        for parent in list(tmp_path.parents)[:3]:
            parent.chmod(parent.stat().st_mode | 0o055)
        tmp_path.chmod(0o755)
    (sealed / "file").write_text("content\n")
    return sealed, free


@pytest.mark.parametrize("user", USERS)
def test_a_program_reads_and_can_not_write(places: tuple[Path, Path], user: int | None) -> None:
    if not namespaces_for(user):
        pytest.skip("NOT RUN: this machine gives this user no namespaces")
    sealed, free = places
    steps = [
        f"cat {sealed}/file",
        f"echo new > {sealed}/new",
        f"rm {sealed}/file",
        f"echo here > {free}/new",
        "id -u; id -g",
    ]
    said = run("; ".join(steps), sealed, user=user)
    assert said.splitlines()[0] == "content"
    assert said.count("Read-only file system") == 2
    assert (free / "new").read_text() == "here\n"
    assert [path.name for path in sealed.iterdir()] == ["file"]
    identity = (os.geteuid(), os.getegid()) if user is None else (user, user)
    assert said.splitlines()[1:3] == [str(number) for number in identity]


def test_only_the_program_is_sealed(places: tuple[Path, Path]) -> None:
    sealed, _ = places
    run("true", sealed)
    (sealed / "another").write_text("written by the process that started it")
    assert "another" in run(f"ls {sealed}", sealed)


@pytest.mark.parametrize("user", USERS[-1:])
def test_without_namespaces_a_program_runs_all_the_same(places: tuple[Path, Path], user: int | None) -> None:
    sealed, _ = places
    assert run(f"cat {sealed}/file", sealed, user=user, prefix=(sys.executable, str(FORBID))) == "content\n"


def test_a_folder_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert run("echo runs", tmp_path / "nowhere") == "runs\n"


def namespaces_for(user: int | None) -> bool:
    kinds = ("--mount",) if (os.geteuid() if user is None else user) == 0 else ("--user", "--mount")
    command = ["unshare", *kinds, "true"]
    return subprocess.run(command, user=user, capture_output=True, cwd="/").returncode == 0
