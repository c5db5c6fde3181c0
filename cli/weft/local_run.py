"""The process behind `weft run`, ``python -m weft_embedded.run``: it runs a manifest and prints the news as lines."""

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
    """One run. To leave the context ends the run and waits for its processes.

    Args:
        request: in the form that ``weft_embedded.run`` expects.

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
            start_new_session=True,  # this process handles Ctrl-C
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
        for _ in self._process.stdout:  # or it would wait for a reader of its output
            pass
        self._process.wait()
        self._errors.close()

    def stop(self, grace: float) -> None:
        """Send SIGTERM to the learners, and SIGKILL after ``grace`` seconds."""
        self._send({"stop": grace})

    def news(self) -> Iterator[dict[str, Any]]:
        """The news of the run; the last item has the type ``end``.

        Raises:
            InvalidManifest: ``problems`` lists the faults.
            WeftError: the run is not possible, or its process ended early.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news: dict[str, Any] = json.loads(line)
            if news["type"] == "invalid":
                problems = [Problem.from_json(fault) for fault in news["problems"]]
                raise InvalidManifest("invalid_manifest", 400, "; ".join(fault.message for fault in problems), problems)
            if news["type"] == "error":
                raise WeftError(news["message"])
            yield news
            if news["type"] == "end":
                return
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise WeftError(f"the run broke off: {said[-1] if said else f'exit code {self._process.returncode}'}")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, and its output says why
            self._process.stdin.write(json.dumps(dict(message)).encode() + b"\n")
            self._process.stdin.flush()
