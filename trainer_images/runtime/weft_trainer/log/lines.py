"""The bytes that a program writes become lines of a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

LONGEST = 1 << 20
"""Bytes. A longer line becomes several lines, of which all but the first say that they go on."""
GOES_ON = "[weft: the line goes on] "
_REWRITE_PAUSE = 1.0


class Line(NamedTuple):
    time: int  # ms since the epoch
    text: str
    source: str = ""
    """The beginning of ``text``, which distinguishes the lines of several processes or files."""


class LineAssembler:
    """One stream's bytes to lines.

    A line that is rewritten by carriage returns (a progress bar) gives its last state, and while it goes on at most one
    state a second.
    """

    def __init__(self, prefix: str = "", clock: Callable[[], float] = time.time) -> None:
        self._prefix = prefix
        self._clock = clock
        self._buffer = b""  # what came since the last line feed or carriage return
        self._state: bytes | None = None  # of a rewritten line, not shown yet
        self._rewritten = False
        self._shown_at = float("-inf")
        self._split = False  # the line that is under way has given pieces already

    def skip(self, data: bytes) -> tuple[list[Line], bytes]:
        """Like ``feed``, but only the first line, and the piece that may become the last, are made into lines. The
        whole lines in between come back as they are."""
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if first < 0:
            return self.feed(data), b""
        lines = self.feed(data[: first + 1])
        between = data[first + 1 : last + 1]
        lines += self.feed(data[last + 1 :])
        if self._prefix and between:
            prefix = self._prefix.encode()
            between = prefix + between[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
        return lines, between

    def feed(self, data: bytes) -> list[Line]:
        lines: list[Line] = []
        *complete, self._buffer = (self._buffer + data).split(b"\n")
        for raw in complete:
            self._complete(raw, lines)
        self._rewrites(lines)
        while len(self._buffer) > LONGEST:
            piece, self._buffer = _split(self._buffer)
            self._emit(piece, lines)
            self._split = True
        return lines

    def close(self) -> list[Line]:
        """At the stream's end: the line that had no line feed yet."""
        lines: list[Line] = []
        if self._buffer or self._state is not None:
            self._complete(self._buffer, lines)
        self._buffer, self._split = b"", False
        return lines

    def _complete(self, raw: bytes, lines: list[Line]) -> None:
        state, rewritten = self._state, self._rewritten
        self._state, self._rewritten = None, False
        if b"\r" in raw:
            raw = raw.removesuffix(b"\r")  # CR LF
            *earlier, raw = raw.split(b"\r")
            if earlier:
                rewritten = True
                state = next((rewrite for rewrite in reversed(earlier) if rewrite), state)
        if rewritten and not raw:
            if state is None:
                return  # the last state has been shown
            raw = state
        while len(raw) > LONGEST:
            piece, raw = _split(raw)
            self._emit(piece, lines)
            self._split = True
        self._emit(raw, lines)
        self._split = False

    def _rewrites(self, lines: list[Line]) -> None:
        # A carriage return that comes last may be the first half of CR LF: it waits for the next bytes.
        last = self._buffer.rfind(b"\r", 0, len(self._buffer) - 1)
        if last < 0:
            return
        states, self._buffer = self._buffer[:last].split(b"\r"), self._buffer[last + 1 :]
        self._rewritten = True
        self._state = next((rewrite for rewrite in reversed(states) if rewrite), self._state)
        if self._state is not None and self._clock() - self._shown_at >= _REWRITE_PAUSE:
            self._shown_at = self._clock()
            self._emit(self._state[-LONGEST:], lines)
            self._state = None

    def _emit(self, raw: bytes, lines: list[Line]) -> None:
        text = raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")  # Postgres holds no NUL
        if self._split:
            text = GOES_ON + text
        lines.append(Line(int(self._clock() * 1000), self._prefix + text, self._prefix))


def _split(raw: bytes) -> tuple[bytes, bytes]:
    """The first LONGEST bytes and the rest, not within a character."""
    cut = LONGEST
    while cut > LONGEST - 4 and raw[cut] & 0xC0 == 0x80:
        cut -= 1
    return raw[:cut], raw[cut:]
