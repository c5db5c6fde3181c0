"""Profiles of running jobs: their recording, and their files."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from weft.errors import NotFound, WeftError
from weft.models.profiles import Profile, ProfileFile
from weft.resources.job_files import job_path
from weft.stacks import hottest
from weft.transport.http import Transport, segment
from weft.transport.transfer import Progress, download, silent
from weft.transport.tunnel import Frame

_PARALLEL = 64


class Profiles:
    """All requests about profiles; ``client.jobs.profiles``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def record(
        self,
        job_id: str,
        *,
        learners: Sequence[int] = (1,),
        steps: int = 10,
        seconds: float | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Profile:
        """Record a profile of a running job, and return when it is stored.

        PyTorch's profiler records the next steps of each process that trains with an optimizer of PyTorch. py-spy
        reads the stacks of these processes meanwhile, or of all Python processes if none uses PyTorch.

        Args:
            learners: their numbers, from 1.
            steps: up to 100.
            seconds: after which the recording ends, with however many steps, up to 600. None: 300 with PyTorch, 30
                without.
            say: gets lines about the recording.

        Raises:
            PermissionDenied: this needs the role editor, or the project lets nobody into its running jobs.
            Conflict: no learner of the job runs.
            WeftError: no learner could record anything.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        request = {"profile": name, "steps": steps, "seconds": seconds}

        def work(learner: int) -> list[str] | WeftError:
            try:
                return self._record(job_id, learner, request, say)
            except WeftError as error:
                return error

        with ThreadPoolExecutor(min(len(learners), _PARALLEL)) as pool:
            results = list(pool.map(work, learners))
        failures = [result for result in results if isinstance(result, WeftError)]
        if len(failures) == len(results):
            raise failures[0]
        missing = [
            f"learner {learner}: {text}"
            for learner, result in zip(learners, results, strict=True)
            for text in ([str(result)] if isinstance(result, WeftError) else result)
        ]
        return replace(self.get(job_id, name), missing=tuple(missing))

    def _record(self, job_id: str, learner: int, request: Mapping[str, Any], say: Callable[[str], None]) -> list[str]:
        """What is missing."""
        with self._transport.tunnel(job_path(job_id, f"tunnels/profile?learner={learner}"), request) as tunnel:
            for frame, data in tunnel:
                if frame is Frame.OUTPUT:
                    say(f"learner {learner}: {data.decode(errors='replace').strip()}")
            tunnel.check()
            return [str(text) for text in tunnel.end.get("missing") or ()]

    def hottest(self, job_id: str, file: ProfileFile, most: int = 5) -> Sequence[tuple[str, float]]:
        """The calls in which the main thread was most often, by a file of the kind ``stacks``, with their shares of its
        time."""
        with tempfile.TemporaryDirectory(prefix="weft-profile-") as folder:
            path = self.download(job_id, file, Path(folder) / "stacks")
            return hottest(path.read_text(errors="replace"), most)

    def list(self, job_id: str) -> Sequence[Profile]:
        """The profiles of a job, newest first. A job keeps its newest 20."""
        answer = self._transport.json("GET", job_path(job_id, "profiles"), holds="profiles")
        return [Profile.from_json(profile) for profile in answer["profiles"]]

    def get(self, job_id: str, profile: str) -> Profile:
        """A profile by its id.

        Raises:
            NotFound: the job has no such profile.
        """
        for found in self.list(job_id):
            if found.id == profile:
                return found
        raise NotFound("not_found", 404, f"the job has no profile {profile}")

    def download(self, job_id: str, file: ProfileFile, target: str | Path, progress: Progress = silent) -> Path:
        """Download a file of a profile.

        Raises:
            TransferError: the download failed.
        """
        quoted = "/".join(segment(part) for part in file.path.split("/"))

        def open_at(headers: Mapping[str, str]) -> AbstractContextManager[httpx.Response]:
            return self._transport.stream("GET", job_path(job_id, f"profiles/{quoted}"), headers=headers)

        download(open_at, Path(target), progress)
        return Path(target)
