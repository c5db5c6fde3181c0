"""The service's own log: lines for people on a terminal, JSON for machines anywhere else."""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure_logging() -> None:
    """Send structlog's and the libraries' messages to standard error in one form. ``WEFT_LOG`` sets the level."""
    shared: list[structlog.typing.Processor] = [
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
    for noisy in ("botocore", "urllib3", "boto3", "s3transfer", "uvicorn.access"):
        logging.getLogger(noisy).setLevel("WARNING")
