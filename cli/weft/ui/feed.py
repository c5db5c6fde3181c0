"""Prints the messages of a followed job: log lines to stdout, states and progress dimly to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from rich.markup import escape

from weft.errors import Unavailable
from weft.models import Event, Gap, Json, LogLine, LogMatch, StateChange
from weft.ui.ansi import harmless, plain, shown
from weft.ui.cells import first_line, styled_state
from weft.ui.console import err, say, to_json

_LEARNER_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)  # ANSI foregrounds, told apart easily


class Feed:
    """A printer for both streams, which keeps their lines apart.

    Args:
        tags: put ``[learner]`` before each line.
        timestamps: put the time before each line.
        numbers: put its number in the job's log before each line.
        left_out: the command that reads the lines that a :class:`~weft.models.Gap` stands for.
        as_json: print lines (and events) as JSON, one each.
        events: print events to stderr; they say what state changes say, and more.
    """

    def __init__(
        self,
        *,
        tags: bool,
        timestamps: bool = False,
        numbers: bool = False,
        left_out: Callable[[Gap], str] = lambda gap: "",
        as_json: bool = False,
        events: bool = False,
    ) -> None:
        self._tags = tags
        self._timestamps = timestamps
        self._numbers = numbers
        self._left_out = left_out
        self.as_json = as_json
        self._events = events
        self._to_terminal = sys.stdout.isatty()
        self._colours = self._to_terminal and not err().no_color
        self._terminal = sys.stderr.isatty()
        self._attempt: int | None = None
        self._passing: str | None = None  # the progress line that the next one overwrites
        self._in_trouble = False

    @property
    def complete(self) -> bool:
        """Whether every line is printed, as into a file. In a terminal, users look at the newest lines."""
        return self.as_json or not self._to_terminal

    def show(self, item: LogLine | StateChange | Event | Gap) -> None:
        """Print a line, an event or a gap."""
        self._back()
        if isinstance(item, LogLine):
            self.line(item)
        elif isinstance(item, Gap):
            self.gap(item)
        elif isinstance(item, Event):
            self.event(item)
        elif not self._events and not item.final:
            self.note(_told(item.state, item.reason))

    def show_all(self, items: Iterable[LogLine]) -> int:
        """Print many lines, without a flush for each. Returns how many there are."""
        count = 0
        for item in items:
            self.line(item, flush=False)
            count += 1
        sys.stdout.flush()
        return count

    def line(self, line: LogLine, *, flush: bool = True) -> None:
        """Print a log line."""
        self._settle()
        if self.as_json:
            self.json_line("line", line.raw, flush=flush)
            return
        if self._attempt is not None and line.attempt != self._attempt:
            self.note(f"attempt {line.attempt}")
        self._attempt = line.attempt
        self._write(line, self._text(line))
        if flush:
            sys.stdout.flush()

    def gap(self, gap: Gap) -> None:
        """Say which lines are not shown, and how to read them."""
        self.note(f"[yellow]{gap.lines:,} lines came too fast for this terminal[/]; to read them:")
        if command := self._left_out(gap):
            say(f"  [command]{escape(command)}[/]")

    def show_matches(self, matches: Iterable[LogMatch]) -> int:
        """Print matching lines and the lines around them, each once. Returns the number of matches."""
        count = 0
        last: int | None = None
        waiting: Sequence[LogLine] = ()  # those after the last match: one of them may be the next match
        for match in matches:
            count += 1
            if self.as_json:
                self.json_line("match", match.raw)
                continue
            for line in waiting:
                if line.n < match.line.n:
                    self._write(line, self._text(line), "-")
                    last = line.n
            fresh = [line for line in match.before if last is None or line.n > last]
            begin = fresh[0] if fresh else match.line
            if last is not None and begin.n > last + 1 and (match.before or match.after):
                sys.stdout.write("\x1b[2m--\x1b[0m\n" if self._colours else "--\n")
            for line in fresh:
                self._write(line, self._text(line), "-")
            self._write(match.line, self._marked(match), ":")
            last, waiting = match.line.n, match.after
            sys.stdout.flush()
        for line in waiting:
            self._write(line, self._text(line), "-")
        sys.stdout.flush()
        return count

    def _marked(self, match: LogMatch) -> str:
        """The line's text, with the matches in bold red."""
        if not self._colours:
            return self._text(match.line)
        text, end, pieces = match.line.text, 0, []
        for begin, stop in match.spans:
            pieces.append(harmless(text[end:begin], colours=False))
            pieces.append(f"\x1b[1;31m{harmless(text[begin:stop], colours=False)}\x1b[0m")
            end = stop
        return "".join(pieces) + harmless(text[end:], colours=False)

    def _text(self, line: LogLine) -> str:
        return shown(line.text, colours=self._colours) if self._to_terminal else plain(line.text)

    def _write(self, line: LogLine, text: str, mark: str = " ") -> None:
        sys.stdout.write(f"{self._prefix(line, mark)}{text}\n")

    def event(self, event: Event) -> None:
        """Print an event as a dim line; progress of one kind overwrites itself in a terminal."""
        if self.as_json:
            self.json_line("event", event.raw)
            return
        clock = f"{event.at.astimezone():%H:%M:%S}  " if event.at else ""
        text = _told(event.state, event.text)
        if event.kind == "image" and self._terminal:
            self._passing = clock + text
            err().file.write("\r\x1b[2K")
            err().print(f"[dim]{self._passing}[/]", end="", no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self.note(clock + text)

    def json_line(self, kind: str, value: Json, *, flush: bool = True) -> None:
        """Print a line of JSON that says what it is."""
        sys.stdout.write(to_json({"type": kind, **value}) + "\n")
        if flush:
            sys.stdout.flush()

    def note(self, markup: str) -> None:
        """Print a dim line of chatter."""
        self._settle()
        sys.stdout.flush()
        say(f"[dim]{markup}[/]")

    def trouble(self, error: Unavailable) -> None:
        """Say once that the connection is lost."""
        if not self._in_trouble:
            self._in_trouble = True
            self.note(f"[yellow]connection lost, trying again[/] ({escape(str(error))})")

    def _back(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self.note("connected again")

    def _settle(self) -> None:
        """End the progress line, before other output follows."""
        if self._passing is not None:
            self._passing = None
            err().file.write("\n")
            err().file.flush()

    def _prefix(self, line: LogLine, mark: str) -> str:
        parts = []
        if self._numbers:
            number = f"{line.n:>7}{mark.rstrip()}"
            parts.append(f"\x1b[2m{number}\x1b[0m" if self._colours else number)
        if self._timestamps:
            when = datetime.fromtimestamp(line.t / 1000).astimezone()
            parts.append(when.isoformat(timespec="milliseconds"))
        if self._tags:
            tag = f"[{line.learner}]"
            if self._colours:
                tag = f"\x1b[{_LEARNER_COLOURS[(line.learner - 1) % len(_LEARNER_COLOURS)]}m{tag}\x1b[0m"
            parts.append(tag)
        return " ".join(parts) + " " if parts else ""


def _told(state: str | None, reason: str) -> str:
    # Longer reasons stand below the outcome.
    text = escape(first_line(reason))
    return f"{styled_state(state, 11)}  {text}" if state else text
