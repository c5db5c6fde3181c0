"""Loads two libraries without what they load only because it happens to be installed.

A process of the service imports this module first.
Each of the two additions would take megabytes, and time at each start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let imports of ``name`` fail, unless it has been loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the import system's mark for a module that is not there
    try:
        yield
    finally:
        del sys.modules[name]


with _without("rich"):  # coloured tracebacks
    import structlog as structlog
with _without("opentelemetry.sdk"):  # metrics of the client
    import redis as redis
