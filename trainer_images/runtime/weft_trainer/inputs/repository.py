"""The code of a git repository: one commit, fetched by the image's git, without history, hooks and submodules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from weft_trainer.errors import DataError
from weft_trainer.spec import RepositoryInput
from weft_trainer.stores.retry import PATIENCE, Temporary, patiently

_LEAST_BYTES_PER_SECOND = 1000
_GONE = ("not our ref", "unadvertised object", "couldn't find remote ref")
_REFUSED = ("authentication failed", "could not read username", "error: 401", "error: 403", "error: 404", "not found")
_AWAY = re.compile(
    r"could not resolve host|failed to connect|couldn't connect|timed out|error: (429|5\d\d)|early eof|rpc failed"
    r"|hung up|connection (was )?reset|operation too slow",
)


def bring_repository(wanted: RepositoryInput, folder: Path) -> str:
    """Bring the files of the commit into an empty ``folder``. Git's own folder is not among them.

    Returns a description of the code. Raises: DataError.
    """
    try:
        import tempfile  # most jobs have no repository

        with tempfile.TemporaryDirectory(prefix="repository-", dir=folder.parent) as scratch:
            git = _Git(wanted, Path(scratch), folder)
            git.run("init", "--quiet", "--template=")
            fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", wanted.url, wanted.commit)
            patiently(lambda: git.run(*fetch), PATIENCE)
            git.run("read-tree", f"{wanted.commit}:{wanted.folder}")
            git.run("checkout-index", "--all", "--force")
    except DataError as error:
        error.error_code = "C102"
        raise
    except OSError as error:
        problem = DataError(f"the repository {wanted.url} can't be brought: {error}")
        problem.error_code = "C102"
        raise problem from error
    return f"commit {wanted.commit[:12]} of {wanted.url}"


class _Git:
    """The program git, with its folder in ``scratch`` and the files of its work tree in ``folder``."""

    def __init__(self, wanted: RepositoryInput, scratch: Path, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        program = shutil.which("git")
        if program is None:
            raise DataError("the image has no git, which brings the code of a repository (`repo`)")
        self._program = program
        # Of this machine, git gets the way to the network, and neither settings nor another repository.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environment = {
            **environment,
            **_settings(wanted),
            "GIT_DIR": str(scratch / "git"),
            "GIT_WORK_TREE": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "http:https",
            "HOME": str(scratch),
            "XDG_CONFIG_HOME": str(scratch),
            "LC_ALL": "C",
        }

    def run(self, *arguments: str) -> None:
        """Raises: DataError, Temporary."""
        done = subprocess.run(
            [self._program, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise self._problem(done.stderr)

    def _problem(self, said: str) -> DataError:
        url, commit = self._wanted.url, self._wanted.commit
        lines, low = said.strip().splitlines(), said.lower()
        if any(word in low for word in _GONE):
            return DataError(f"the repository {url} has no commit {commit} any more, or does not give it")
        if "not a valid object name" in low or "not a tree" in low:
            return DataError(f"commit {commit} of {url} has no folder {self._wanted.folder!r} (repo.path)")
        if any(word in low for word in _REFUSED):
            return DataError(f"the repository {url} does not exist any more, or its secret does not open it")
        kind = Temporary if _AWAY.search(low) else DataError
        return kind(f"git can't fetch {url}: {_printable(lines)}")


def _settings(wanted: RepositoryInput) -> dict[str, str]:
    """Git's settings as environment variables: arguments are visible to all processes, and files stay."""
    settings = {
        "core.hooksPath": os.devnull,
        "credential.helper": "",
        "http.followRedirects": "false",
        "http.lowSpeedLimit": str(_LEAST_BYTES_PER_SECOND),
        "http.lowSpeedTime": f"{PATIENCE:.0f}",
        "submodule.recurse": "false",
        "protocol.version": "2",
    }
    if wanted.authorization:
        settings["http.extraHeader"] = f"Authorization: {wanted.authorization}"
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _printable(lines: Sequence[str]) -> str:
    last = " / ".join(lines[-2:]) or "it says nothing"
    return "".join(letter if letter.isprintable() else "?" for letter in last)[:500]
