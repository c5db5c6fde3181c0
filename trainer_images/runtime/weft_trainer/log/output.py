"""The way of a running program's output into the log, from the pipe or the file that the program writes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft_trainer.log.lines import Line, LineAssembler


class Output(Protocol):
    """Takes the output of programs. Thread-safe."""

    def write(self, lines: Sequence[Line]) -> None: ...

    @property
    def flooded(self) -> bool:
        """Whether whole lines need not be parsed just now, but may be given to ``leave_out``."""

    def leave_out(self, raw: bytes) -> None:
        """Take whole lines, as the program wrote them, that need not go to the API."""

    @property
    def last_lines(self) -> list[str]: ...


def write_bytes(output: Output, assembler: LineAssembler, data: bytes) -> list[Line]:
    """Give ``output`` the bytes that a program has written. Returns the lines that were made of them."""
    if not output.flooded:
        lines = assembler.feed(data)
        output.write(lines)
        return lines
    lines, between = assembler.skip(data)
    output.write(lines)
    output.leave_out(between)
    return lines
