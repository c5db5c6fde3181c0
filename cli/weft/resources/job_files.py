"""The files of a job, and their download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import httpx

from weft.models import FileInfo
from weft.transport.http import Transport, segment
from weft.transport.transfer import Progress, download, silent


def job_path(job_id: str, rest: str = "") -> str:
    return f"/jobs/{segment(job_id)}" + (f"/{rest}" if rest else "")


class JobFiles:
    """The part of :class:`weft.resources.jobs.Jobs` that reads files."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def files(self, job_id: str) -> Sequence[FileInfo]:
        """The files of the job's results so far."""
        page = self._transport.json("GET", job_path(job_id, "files"))
        return [FileInfo.from_json(file) for file in page.get("files") or []]

    def download_file(self, job_id: str, path: str, target: str | Path, progress: Progress = silent) -> Path:
        """Download one file of the results.

        Raises:
            TransferError: the download failed.
        """
        quoted = "/".join(segment(part) for part in path.split("/"))
        return self._download(job_path(job_id, f"files/{quoted}"), target, progress)

    def download_trained_model(self, job_id: str, target: str | Path, progress: Progress = silent) -> Path:
        """Download all results as a zip.

        Raises:
            Conflict: there are no results.
            TransferError: the download failed.
        """
        return self._download(job_path(job_id, "trained-model"), target, progress)

    def download_definition(self, job_id: str, target: str | Path, progress: Progress = silent) -> Path:
        """Download the submitted code as a zip.

        Raises:
            NotFound: the job has no code.
            TransferError: the download failed.
        """
        return self._download(job_path(job_id, "definition"), target, progress)

    def _download(self, path: str, target: str | Path, progress: Progress) -> Path:
        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            return self._transport.stream("GET", path, headers=headers)

        target = Path(target)
        download(open_at, target, progress)
        return target
