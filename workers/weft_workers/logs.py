"""The service's own log: one line a message on standard error, with job and attempt."""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure_logging() -> None:
    """Send structlog and the standard library's loggers the same way: readable on a terminal, JSON elsewhere.

    ``WEFT_LOG`` sets the level (default INFO).
    """
    level = os.environ.get("WEFT_LOG", "INFO").upper()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    terminal = sys.stderr.isatty()
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
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
    root.setLevel(level if level in logging.getLevelNamesMapping() else "INFO")
    # One line a hint is noise: steps say what they did.
    for noisy in ("celery.worker.strategy", "celery.app.trace", "botocore", "urllib3"):
        logging.getLogger(noisy).setLevel("WARNING")
