"""The programs that builds of packages use: uv, and the image's own Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from weft_trainer.config import RUNTIME
from weft_trainer.errors import TrainerError


def find_uv(scratch: Path) -> str:
    """uv beside the agent, beside this interpreter or on the PATH; else pip brings it into the folder ``scratch``.

    Raises:
        TrainerError: there is none, and pip can't bring it.
    """
    for place in (RUNTIME / "weft_trainer" / "bin" / "uv", RUNTIME / "bin" / "uv", Path(sys.executable).parent / "uv"):
        if place.is_file():
            return str(place)
    if found := shutil.which("uv"):
        return found
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(scratch), "uv"]
    said = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if said.returncode != 0:
        raise TrainerError(f"the image has no uv, and pip can't bring it: {said.stderr.strip()[-500:]}")
    return str(scratch / "bin" / "uv")


def uv_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """uv's settings that correspond to pip's configuration on this machine. uv does not read it, but an index or a
    folder of wheels that it names holds for both."""
    for place in (RUNTIME / "weft_trainer" / "bin" / "pip-settings", RUNTIME.parent / "pip-settings"):
        if place.is_file():
            break
    else:
        return {}
    said = subprocess.run(
        [sys.executable, str(place)], env=dict(environment), capture_output=True, text=True, errors="replace"
    )
    pairs = (word.partition("=") for word in shlex.split(said.stdout) if word != "export")
    return {name: value for name, _, value in pairs if name.startswith(("UV_", "SSL_", "ALL_PROXY"))}


def index_variables(url: str, credentials: str, environment: Mapping[str, str]) -> dict[str, str]:
    """uv's settings for a private index. It comes first: a package that it has is never taken from another index, so
    nobody can put a newer one of the same name on a public index.

    Args:
        url: of the index.
        credentials: ``user:password``, or a token.
        environment: with uv's other settings.
    """
    user, colon, password = credentials.partition(":")
    if credentials and not colon:
        user, password = "__token__", credentials
    settings = {
        "UV_INDEX": " ".join(filter(None, (f"private={url}", environment.get("UV_INDEX", "")))),
        "UV_INDEX_STRATEGY": "first-index",
    }
    if credentials:
        settings |= {"UV_INDEX_PRIVATE_USERNAME": user, "UV_INDEX_PRIVATE_PASSWORD": password}
    return settings


def run_environment() -> dict[str, str]:
    """This process's environment for the image's Python, without the folders that the job's own environment puts in
    front."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
