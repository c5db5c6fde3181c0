"""A run's own folder: its content, and the lock of the process that works in it.

``run.json``        the run's id and how many attempts it has had
``metrics.csv``    the metrics that the training has reported, a line a point
``mlflow/``         the stores of MLflow's client, by learner
``results/``        the content of RESULT_DIR at the end, unless it goes elsewhere
``checkpoints/``    the last states of CHECKPOINT_DIR, as learners keep them in S3
``.incoming/``      files on their way into one of these
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft_core.ids import new_id
from weft_embedded.run.metrics import MetricsFile
from weft_embedded.run.request import Request, RunError


class OutFolder:
    """The folder of one run; no other process may use it meanwhile (:meth:`taken`)."""

    def __init__(self, path: Path, results: Path | None = None) -> None:
        self.path = path
        self.results = results or path / "results"
        self.checkpoints = path / "checkpoints"
        self.metrics = MetricsFile(path / "metrics.csv")
        self.mlflow = path / "mlflow"
        self.incoming = path / ".incoming"
        self._about = path / "run.json"
        self.id = ""
        self.attempts = 0
        """How many the run has had before."""

    def exists(self) -> bool:
        """Whether a run was here before."""
        return self._about.exists()

    def load(self) -> None:
        """Read the files of an earlier run. Raises RunError."""
        try:
            about = json.loads(self._about.read_text())
            self.id, self.attempts = str(about["id"]), int(about["attempts"])
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{self._about} can't be read: there is no run to be resumed") from None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Make the folder this process's own. Raises RunError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunError(f"{self.path} can't be used: {error.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"another run is at work in {self.path}: give another folder by --out") from None
            shutil.rmtree(self.incoming, ignore_errors=True)  # of one that was killed
            try:
                for folder in (self.results, self.checkpoints, self.incoming):
                    folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(f"{error.filename} can't be used: {error.strerror}") from None
            yield
        finally:
            self._tidy()
            os.close(handle)

    def begin(self, attempt: int) -> None:
        """Note that an attempt begins."""
        self.id = self.id or new_id("run")
        self.attempts = attempt
        temporary = self.incoming / "run.json"
        temporary.write_text(json.dumps({"id": self.id, "attempts": attempt}) + "\n")
        temporary.replace(self._about)

    def _tidy(self) -> None:
        """Remove empty folders, and leave the others."""
        shutil.rmtree(self.incoming, ignore_errors=True)
        (self.path / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.checkpoints.rmdir()
        if self.results.parent == self.path:
            with contextlib.suppress(OSError):
                self.results.rmdir()
        if not self.exists():
            with contextlib.suppress(OSError):
                self.path.rmdir()


def choose_folder(request: Request, name: str) -> OutFolder:
    """The folder of a new run, or the one that is to be resumed. Raises RunError."""
    if request.out is not None:
        folder = OutFolder(request.out, request.results)
        if folder.exists() and not request.resume:
            raise RunError(
                f"{request.out} holds an earlier run: --resume goes on from its last checkpoint; give a new run "
                "another folder"
            )
    else:
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        number = 1
        while OutFolder(_numbered(request.folder / slug, number)).path.exists():
            number += 1
        folder = OutFolder(_numbered(request.folder / slug, max(1, number - request.resume)), request.results)
    if request.resume:
        if not folder.exists():
            raise RunError(f"there is no run in {folder.path} that could be resumed")
        folder.load()
    return folder


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.name}-{number}")
