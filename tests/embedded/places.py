"""The result of `make setup`, moved to another place, and used there as a stranger would."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS, REPOSITORY

USER = 23456
"""An ordinary user whom this machine does not know yet."""
FORBID_NAMESPACES = Path(__file__).with_name("forbid_namespaces.py")
_PARTS = ("api", "cli", "core", "data", "embedded", "examples", "migrations", "trainer_images", "workers", ".venv")
_SITE = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")


class Checkout:
    """A copy of this checkout, of hard links where the disk allows them; moving it costs next to nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._told = REPOSITORY  # where its programs believe that they are
        folder.mkdir(parents=True)
        for name in _PARTS:
            shutil.copytree(REPOSITORY / name, folder / name, symlinks=True, copy_function=_link)
        shutil.copy2(REPOSITORY / "pyproject.toml", folder)
        self.move(folder)

    @property
    def programs(self) -> Path:
        return self.path / ".venv/bin"

    def move(self, target: Path) -> None:
        """Move it, and do what installing it there would have done: tell its programs where they are."""
        if target != self.path:
            self.path.rename(target)
            self.path = target
        old = str(self._told)
        for path in [*self.programs.iterdir(), *(self.path / ".venv" / _SITE).glob("*.pth")]:
            if path.is_symlink() or path.stat().st_size > 1 << 20:
                continue
            text = path.read_text(errors="surrogateescape")
            if old in text:
                self._rewrite(path, text, old)
        self._told = target

    def _rewrite(self, path: Path, text: str, old: str) -> None:
        python = self.programs / "python"
        if path.parent == self.programs and "\nimport " in text:
            first = f"#!{python}\n"
            if " " in first:  # that can't stand there; as pip and uv write it
                first = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
            text = first + text[text.index("import ") :]
        mode = path.stat().st_mode
        path.unlink()  # it is a link to a file of the real checkout
        path.write_text(text.replace(old, str(self.path)), errors="surrogateescape")
        path.chmod(mode)

    def own_folders(self, owner: int, mode: int) -> None:
        """Give its folders to somebody; its files, which it shares with the real checkout, stay as they are."""
        for folder, _, _ in os.walk(self.path):
            os.chmod(folder, mode)
            os.chown(folder, owner, -1)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk
        shutil.copy2(source, target, follow_symlinks=False)


class Visitor:
    """Somebody at a shell, in a home of their own.

    Args:
        home: their home folder.
        checkout: what they run.
        prelude: shell commands that come before each of theirs, in a mount namespace of their own.
        become: what each command is run by.
        own_environments: builds the trainer environments in this home, instead of using this machine's.
    """

    def __init__(
        self,
        home: Path,
        checkout: Checkout,
        *,
        prelude: str = "",
        become: tuple[str, ...] = (),
        own_environments: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.checkout = checkout
        self._prelude = prelude
        self._become = become
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "XDG_", "DLAAS_"))}
        self.environment = {
            **ours,
            "HOME": str(home),
            "PATH": f"{checkout.programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "WEFT_ENVIRONMENTS_DIR": str(home / ".cache/weft/environments") if own_environments else ENVIRONMENTS,
            "TMPDIR": "/tmp",
            **(environment or {}),
        }

    def run(self, *command: str, umask: str = "022") -> str:
        """Run a command in their home, and return all that it prints; fails when the command does."""
        script = f'set -e; {self._prelude or ":"}; umask {umask}; cd {shlex.quote(str(self.home))}; exec "$@"'
        alone = ("unshare", "--mount", "--propagation", "private") if self._prelude else ()
        done = subprocess.run(
            [*alone, "sh", "-c", script, "sh", *self._become, *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}"
        return done.stdout


def as_ordinary_user(scratch: Path) -> tuple[str, tuple[str, ...]]:
    """How root runs commands as :data:`USER`: a prelude that makes the user known and lets them reach this Python
    wherever it is, and the command that becomes them."""
    base, spare = Path(sys.base_prefix).resolve(), scratch / "python"
    passwd = scratch / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text() + f"stranger:x:{USER}:{USER}::{scratch}:/bin/sh\n")
    spare.mkdir()
    steps = [f"mount --bind {shlex.quote(str(passwd))} /etc/passwd"]
    closed = next((folder for folder in (*reversed(base.parents), base) if not folder.stat().st_mode & 0o001), None)
    if closed is not None:
        there, here, hidden = (shlex.quote(str(folder)) for folder in (spare, base, closed))
        steps += [f"mount --bind {here} {there}", f"mount -t tmpfs -o mode=755 tmpfs {hidden}"]
        steps += [f"mkdir -p {here}", f"mount --bind {there} {here}"]
    return "; ".join(steps), ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
