"""``python -m weft_workers``: a Celery worker with a sweeper beside it, until SIGTERM."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

import weft_core.libraries  # noqa: F401  (before all that imports the two)

# isort: split

import argparse
import sys

from weft_core.processes import collect_again, name_process
from weft_core.service_log import configure_logging
from weft_workers.app import make_app
from weft_workers.process import BadSettings, open_context, read_settings, wait_for_installation
from weft_workers.sweeper_process import SweeperProcess
from weft_workers.telemetry import serve, share

NAME = "weft-worker"
"""Of these processes, for `ps` and `top`."""


def _tell_prometheus(port: int, arguments: list[str]) -> None:
    share("weft_workers", arguments)
    try:
        serve(port)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadSettings(f"telemetry.metrics_port: can't listen at port {port}: {why}") from None


def main(arguments: list[str] | None = None) -> int:
    """Run a worker; returns the exit code."""
    name_process(NAME)
    collect_again()
    parser = argparse.ArgumentParser(prog="python -m weft_workers", description="Weft's worker and its sweeper.")
    parser.add_argument(
        "--concurrency", type=int, default=2, help="steps that Celery runs at the same time (default 2)"
    )
    chosen = parser.parse_args(arguments)
    configure_logging()
    try:
        settings = read_settings()
        if settings.telemetry.metrics_port:
            _tell_prometheus(settings.telemetry.metrics_port, sys.argv[1:] if arguments is None else arguments)
        installation = wait_for_installation(settings)
        open_context(settings, installation, connections=1).close()  # bad settings show here, not in every child
    except BadSettings as error:
        for line in str(error).splitlines():
            print(f"weft worker: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    sweeper = SweeperProcess()
    sweeper.start()
    app = make_app(settings, installation)
    worker = app.Worker(
        pool="prefork",
        concurrency=chosen.concurrency,
        queues=[app.conf.task_default_queue],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="WARNING",
    )
    try:
        worker.start()
        return int(worker.exitcode or 0)
    finally:
        sweeper.stop()


if __name__ == "__main__":
    sys.exit(main())
