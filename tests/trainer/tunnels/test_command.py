"""A command in a tunnel, at the moments that a real tunnel meets only on a busy machine."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pytest

from weft_trainer.http import Closed
from weft_trainer.machine.sealing import Sealed
from weft_trainer.tunnels.command import Command
from weft_trainer.tunnels.place import Place
from weft_trainer.tunnels.stream import Frame


class Stream:
    """A client that sends nothing, and has sent its last data."""

    def __init__(self) -> None:
        self.told: list[tuple[Frame, bytes]] = []

    def receive(self) -> tuple[Frame, bytes]:
        raise Closed("the client has nothing more to say")

    def write(self, frame: Frame, data: bytes) -> None:
        self.told.append((frame, data))

    def took(self, size: int) -> None:
        """Nothing is ever sent."""


class Watchdog:
    def adopt(self, pid: int) -> None: ...

    def disown(self, pid: int) -> None: ...


def test_output_that_comes_right_after_a_look_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes and ends after a look that found nothing, before the agent has noted that."""
    stream, real_poll = Stream(), select.poll
    holder: list[Command] = []

    class Poll:
        def __init__(self) -> None:
            self._real: Any = real_poll()
            self.register = self._real.register
            self._looked = False

        def poll(self, timeout: int) -> list[tuple[int, int]]:
            if self._looked:
                found: list[tuple[int, int]] = self._real.poll(timeout)
                return found
            self._looked = True
            (tmp_path / "go").touch()
            assert holder[0]._ended.wait(300)
            return []

    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(Command, "_hang_up", lambda _: None)
    place = Place(dict(os.environ), tmp_path, Sealed())
    script = "until test -e go; do sleep 0.01; done; echo said"
    holder.append(Command(stream, ["sh", "-c", script], None, place, Watchdog()))  # type: ignore[arg-type]
    assert holder[0].run() == 0
    assert stream.told == [(Frame.OUTPUT, b"said\n")]
