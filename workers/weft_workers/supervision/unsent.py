"""Sends the lines and metrics that the agents of a run had not sent when they and all supervisors were killed at once.

    unsent RUN_FOLDER LOCK_DESCRIPTOR

That happens when the machine or the container is restarted. The process holds the run's lock, as the supervisors did.
After its end, the next observation of the run ends the run.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from weft_core import processes
from weft_workers.supervision import spawn
from weft_workers.supervision.learner import SIGNALS, UNSENT_SECONDS, send_unsent
from weft_workers.supervision.run import RunFolder

_RESTART_SECONDS = 30.0
"""The API may be starting, too. The job's next attempt could not start without the API either."""


def main() -> None:
    path, lock = sys.argv[1:]
    spawn.leave_parent(keep=[int(lock)])
    spawn.default_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    processes.adopt_orphans()
    run = RunFolder(Path(path))
    send_unsent(run, run.unsent(), lambda: UNSENT_SECONDS if run.stop_request() else _RESTART_SECONDS)
