"""The interface for traces; this implementation records nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

Attribute = str | int | float | bool


class Tracing:
    """Records nothing. :class:`weft_core.tracing.otel.OtelTracing` has the same methods and sends spans."""

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[dict[str, Attribute]]:
        """Around one HTTP request; ``headers`` may place it in the caller's trace.

        The content of the dictionary at the end becomes the attributes of the span. ``http.route`` becomes a part of
        its name.
        """
        yield {}

    @contextmanager
    def span(self, name: str, parent: str | None, **attributes: Attribute) -> Iterator[str | None]:
        """Around work that takes time; yields the span's place, as the parent of further spans."""
        yield None

    def record(self, name: str, parent: str | None, start: datetime, end: datetime, **attributes: Attribute) -> None:
        """Record a span that has ended. Without ``parent`` this does nothing: a trace of one span says little."""

    def here(self) -> str | None:
        """The place of the current span; None: there is none."""
        return None

    def flush(self) -> None:
        """Send the spans that are not sent yet."""

    def close(self) -> None:
        """Send the spans that are not sent yet, for the last time."""
