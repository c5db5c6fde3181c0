"""The view that a learner has of this machine; see :mod:`weft_workers.supervision.sandbox`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft_core.engine_settings import LocalSettings
from weft_workers.engines.local import users
from weft_workers.environments import Environment
from weft_workers.supervision import sandbox, spawn

_PATHS = ("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "CURL_CA_BUNDLE")


@lru_cache(maxsize=1)
def obstacle() -> str:
    """The reason for which this machine can't keep learners apart; empty: it can. Found out once, by trying."""
    return _try([sys.executable, "-I", "-S", sandbox.__file__])


@lru_cache(maxsize=1)
def network_obstacle() -> str:
    """The reason for which this machine can't give a gang a network of its own; empty: it can. Found out once."""
    return obstacle() or _try(spawn.command("weft_workers.supervision.network"))


def _try(command: Sequence[str]) -> str:
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return ""
    said = tried.stderr.strip().splitlines()
    return said[-1] if said else f"the try ended with exit code {tried.returncode}"


def exposure(settings: LocalSettings) -> str:
    """The reason for which jobs can reach each other and the service; empty: they can't."""
    if settings.isolation == "none":
        return "its setting isolation is none"
    trouble = obstacle()
    if not trouble or settings.isolation != "auto":
        return ""
    others = "; learners of different projects are different users" if settings.users and not users.obstacle() else ""
    return f"this machine does not allow it: {trouble}{others}"


def shared_network(settings: LocalSettings) -> str:
    """The reason for which jobs that are kept apart use the machine's network all the same; empty: they do not."""
    if settings.isolation != "auto" or obstacle():
        return ""
    trouble = network_obstacle()
    return f"this machine does not allow it: {trouble}" if trouble else ""


def view(
    environment: Environment, agent: Path, variables: dict[str, str], tmp: Path, writable: Sequence[Path], gpus: bool
) -> dict[str, Any]:
    """The fields of a sandbox's View.

    Args:
        agent: the folder of the agent's code.
        variables: the learner's environment, in which variables may name folders of the machine.
        writable: folders that its agent and its jobs may write.
    """
    named = (Path(part) for name in _PATHS for part in variables.get(name, "").split(os.pathsep) if part[:1] == "/")
    readable = [environment.folder, agent, *_interpreter(environment.python), *named]
    return sandbox.Visible(
        [str(path) for path in readable], [str(path) for path in _outermost(writable)], str(tmp), gpus
    )._asdict()


def hidden(folders: Iterable[Path]) -> str:
    """The value of the variable that names the folders which the user's program must not see."""
    return os.pathsep.join(str(folder) for folder in _outermost(folders))


def _interpreter(python: Path) -> Iterator[Path]:
    """The installations that a virtual environment's interpreter is a link to, one after the other."""
    link = python
    for _ in range(40):
        if not link.is_symlink():
            break
        link = Path(os.path.normpath(link.parent / os.readlink(link)))
        yield link.parent.parent
    yield python.resolve().parent.parent


def _outermost(folders: Iterable[Path]) -> list[Path]:
    given = set(folders)
    return sorted(folder for folder in given if not given.intersection(folder.parents))
