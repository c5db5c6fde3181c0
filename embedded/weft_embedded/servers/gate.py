"""Lets other machines reach the S3 store, whose own ports stay on 127.0.0.1 (see :mod:`weft_embedded.forward`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from weft_embedded import ports, probe
from weft_embedded.listening import Listening
from weft_embedded.part import Part


class Gate(Part):
    """Passes on connections to S3 that come in at an open address.

    Its port is chosen once and kept, as the store's own.

    Args:
        listening: where it listens, and the name in its URL.
        target: the port of S3 on 127.0.0.1, asked for when the gate is started.
        kept: the file with its port.
        run, log: see :class:`Part`.
    """

    name = "gate"
    label = "the gate to S3"

    def __init__(self, listening: Listening, target: Callable[[], int], kept: Path, run: Path, log: Path) -> None:
        super().__init__(run, log)
        self._listening = listening
        self._target = target
        self._kept = kept
        self.port = self._load_port() or ports.pick(host=listening.host)

    @property
    def url(self) -> str:
        """S3's endpoint for everybody."""
        return f"http://{self._listening.name}:{self.port}"

    def prepare(self) -> None:
        if not ports.is_free(self.port, self._listening.host):
            self.port = ports.pick(host=self._listening.host)
        self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kept.write_text(f"{self.port}\n")

    def command(self) -> list[str]:
        words = [self._listening.host, str(self.port), str(self._target())]
        return [sys.executable, "-m", "weft_embedded.forward", *words]

    def health(self) -> str | None:
        try:
            status, _ = probe.http_get(f"http://{self._listening.local}:{self.port}/healthz")
        except OSError as error:
            return str(error) or type(error).__name__
        return None if status == 200 else f"HTTP {status} of S3's /healthz"

    def _load_port(self) -> int | None:
        try:
            return int(self._kept.read_text())
        except (OSError, ValueError):
            return None
