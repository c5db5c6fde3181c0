"""The Celery app. Celery carries hints only: losing every message costs latency and nothing else (docs/leases.md)."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_process_init

from weft_core.processes import die_with_parent
from weft_core.service_log import configure_logging
from weft_core.settings import Settings
from weft_core.wake import STEP_QUEUE, STEP_TASK, broker_url
from weft_workers import broker
from weft_workers.context import Context
from weft_workers.process import open_context
from weft_workers.reconcile import step

SOFT_LIMIT, HARD_LIMIT = 60, 90
"""Seconds a task may take; a step takes milliseconds, and several of them at most a few seconds."""


class _Contexts:
    """The context of the process that asks: connections don't survive a fork."""

    def __init__(self, settings: Settings, installation: str) -> None:
        self._settings, self._installation = settings, installation
        self._mine: tuple[int, Context] | None = None

    def get(self) -> Context:
        if self._mine is None or self._mine[0] != os.getpid():
            self._mine = os.getpid(), open_context(self._settings, self._installation, connections=2)
        return self._mine[1]


def make_app(settings: Settings, installation: str) -> Celery:
    """The app with its one task.

    Args:
        settings: of the service.
        installation: this installation's id.
    """
    broker.use()
    app = Celery("weft", broker=broker_url(settings.redis_url.get_secret_value()), set_as_current=False)
    app.conf.update(
        task_default_queue=STEP_QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_soft_time_limit=SOFT_LIMIT,
        task_time_limit=HARD_LIMIT,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # For ever: the sweeper does the work while Redis is away.
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": 2 * HARD_LIMIT,  # a hint whose worker died is delivered again; the sweep was earlier
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
        },
    )
    contexts = _Contexts(settings, installation)

    @app.task(name=STEP_TASK)  # type: ignore[untyped-decorator, unused-ignore]
    def run_step(job_id: str) -> None:
        step(contexts.get(), job_id)

    parent = os.getpid()

    def begin(**_: Any) -> None:
        """A fresh pool process: never outlives the worker; ready before the first hint."""
        if os.getpid() != parent:
            die_with_parent(parent)
        contexts.get()

    worker_process_init.connect(begin, weak=False)
    setup_logging.connect(_own_logging, weak=False)
    return app


def _own_logging(**_: Any) -> None:
    """Instead of Celery's own set-up."""
    configure_logging()
