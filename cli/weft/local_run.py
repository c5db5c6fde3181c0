"""The process behind `weft run`: another package's, which runs a manifest here and says in lines what happens."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from weft.errors import InvalidManifest, WeftError
from weft.models import Problem

_NEEDED = ("weft_embedded", "weft_workers", "weft_core", "pydantic", "pydantic_settings")


class LocalRun:
    """One run. Leaving the context ends it, and waits until nothing of it is left.

    Args:
        request: as ``weft_embedded.run`` takes it.

    Raises:
        WeftError: the packages are missing.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise WeftError(f"`weft run` needs more packages: pip install 'weft[run]' ({missing[0]} is missing)")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft_embedded.run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a terminal's Ctrl-C is ours to hear
        )
        self._send(request)

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for _ in self._process.stdout:  # or it would wait for a reader
            pass
        self._process.wait()
        self._errors.close()

    def stop(self, grace: float) -> None:
        """SIGTERM for the learners, SIGKILL after ``grace`` seconds."""
        self._send({"stop": grace})

    def news(self) -> Iterator[dict[str, Any]]:
        """What happens, until the end; the last one is of type ``end``.

        Raises:
            InvalidManifest: ``problems`` names each fault.
            WeftError: there can be no such run.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            one: dict[str, Any] = json.loads(line)
            if one["type"] == "invalid":
                problems = [Problem.from_json(fault) for fault in one["problems"]]
                raise InvalidManifest("invalid_manifest", 400, "; ".join(fault.message for fault in problems), problems)
            if one["type"] == "error":
                raise WeftError(one["message"])
            yield one
            if one["type"] == "end":
                return
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise WeftError(f"the run broke off: {said[-1] if said else f'exit code {self._process.returncode}'}")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended: its last words say why
            self._process.stdin.write(json.dumps(dict(message)).encode() + b"\n")
            self._process.stdin.flush()
