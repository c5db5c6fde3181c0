"""The service in one process, API and sweeper, that dies at the failpoint that it is armed with."""

from __future__ import annotations

import os
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

import uvicorn
from tests.processes import FORKS
from tests.workers.crashing import FileEngine

from weft_api.app import create_app
from weft_core.failpoints import VARIABLE
from weft_core.processes import die_with_parent
from weft_core.settings import Settings
from weft_workers import sweeper
from weft_workers.context import make_context
from weft_workers.reconcile import admit

INSTALLATION = "inst-test"
_LOG = "service.log"
_SOON = {"_CHECK_EVERY": 0.5, "_TIDY_EVERY": 1.0, "_RETENTION_EVERY": 1.0, "_ARCHIVE_EVERY": 0.3, "_LOOK_EVERY": 0.3}


def _serve(settings: Settings, folder: Path, port: int, rules: str) -> None:
    os.environ[VARIABLE] = rules
    with (folder / _LOG).open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    die_with_parent(os.getppid())  # the server of forks, which ends with the tests
    for name, seconds in _SOON.items():
        setattr(sweeper, name, seconds)
    admit.REST = 0.0
    config = uvicorn.Config(
        create_app(settings), port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    threading.Thread(target=uvicorn.Server(config).run, daemon=True).start()
    context = make_context(settings, INSTALLATION, {"local": FileEngine(folder)}, connections=10)
    sweeper.Sweeper(context, threads=3).run()


class Service:
    """The process, started again whenever it has died."""

    def __init__(self, settings: Settings, folder: Path, port: int) -> None:
        self._given = settings, folder, port
        self.url = f"http://127.0.0.1:{port}"
        self._process: BaseProcess | None = None
        self._lock = threading.Lock()
        self.deaths = 0

    def start(self, rules: str = "") -> None:
        """Start it anew, armed with these rules."""
        self.stop()
        self._start(rules)

    def revive(self) -> None:
        """Start it without failpoints if it has died."""
        with self._lock:
            if self._process is not None and not self._process.is_alive():
                self.deaths += 1
                self._start("")

    def stop(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def said(self) -> str:
        """The end of its log."""
        return (self._given[1] / _LOG).read_text()[-20_000:]

    def _start(self, rules: str) -> None:
        self._process = FORKS.Process(target=_serve, args=(*self._given, rules))
        self._process.start()
