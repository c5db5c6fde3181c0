"""The service's own log, of the API and the workers alike: lines for people on a terminal, JSON for machines elsewhere.

Every line tells which job and attempt it is about, when :func:`note` or structlog's ``bound_contextvars`` said so.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog

_NOISY = (
    *("botocore", "urllib3", "boto3", "s3transfer", "uvicorn.access"),
    *("celery.worker.strategy", "celery.app.trace"),  # one line a hint: steps say what they did
)

# A request's own notes. The dictionary is shared by the threads that work on the request, as each runs in a copy of the
# context: what is noted in one shows in all.
_notes: ContextVar[dict[str, Any] | None] = ContextVar("weft_log_notes", default=None)


@contextmanager
def noting() -> Iterator[dict[str, Any]]:
    """Around one request: yields what has been noted of it by then."""
    notes: dict[str, Any] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def note(**ids: Any) -> None:
    """Have all further lines of this request tell ``ids``, such as ``job`` and ``attempt``."""
    if (notes := _notes.get()) is not None:
        notes.update(ids)


def _with_notes(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {**(_notes.get() or {}), **event}


def configure_logging() -> None:
    """Send structlog's and the libraries' messages to standard error in one form. ``WEFT_LOG`` sets the level."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _with_notes,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        last: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer()]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = os.environ.get("WEFT_LOG", "INFO").upper()
    root.setLevel(level if level in logging.getLevelNamesMapping() else "INFO")
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel("WARNING")
