"""Profiles that users ask for through a tunnel: :mod:`weft_trainer.program.profiles` records them, and they are stored
as files of the job."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_trainer.errors import Fenced, TrainerError
from weft_trainer.http import Closed
from weft_trainer.service.client import ApiClient
from weft_trainer.stores.installation import InstallationStore
from weft_trainer.stores.retry import PATIENCE, patiently
from weft_trainer.tunnels.stream import Frame, Stream
from weft_trainer.words import count, size

if TYPE_CHECKING:
    from weft_trainer.program.profiles import Profiler, Wanted

_MOST_STEPS = 100
_MOST_SECONDS = 600
_KEPT = 20
"""Profiles of a job; the oldest go first."""


class Profiles:
    """One profile of a learner at a time.

    Args:
        learner: its number, from 1.
        profiler: makes the object that records.
    """

    def __init__(self, api: ApiClient, learner: int, profiler: Callable[[], Profiler]) -> None:
        self._api = api
        self._learner = learner
        self._profiler = profiler
        self._store = InstallationStore(api, "profiles")
        self._busy = threading.Lock()

    def record(self, stream: Stream, asked: Mapping[str, Any], over: threading.Event) -> dict[str, Any]:
        """The last word of the tunnel. The recording outlives the tunnel, and ends when ``over`` is set.

        Raises:
            ValueError: the request is not valid, or a recording is under way.
        """
        wanted = _wanted(asked)
        if not self._busy.acquire(blocking=False):
            raise ValueError("a profile of this learner is being recorded already")
        try:
            threading.Thread(target=_answer_pings, args=(stream,), name="tunnel", daemon=True).start()
            told = self._recorded(stream, wanted, over)
        except (TrainerError, Fenced, OSError) as error:
            told = {"error": f"the files can't be stored: {error}"}
        finally:
            self._busy.release()
        if "error" in told:
            self._tell(wanted, f"failed: {told['error']}")
        return told

    def _recorded(self, stream: Stream, wanted: Wanted, over: threading.Event) -> dict[str, Any]:
        def say(text: str) -> None:
            self._tell(wanted, text)
            with contextlib.suppress(Closed):
                stream.write(Frame.OUTPUT, f"{text}\n".encode())

        found = self._profiler().record(wanted, say, over)
        if not found.files:
            return {"error": "; ".join(found.missing) or "nothing was recorded"}
        self._remove_old(wanted.id)
        files = [self._put(wanted, name, path) for name, path in found.files.items()]
        stored = f"stored {count(len(files), 'file')} ({size(sum(file['size'] for file in files))})"
        self._tell(wanted, "; ".join([stored, *found.missing]))
        return {"exit_code": 0, "files": files, "missing": found.missing}

    def _put(self, wanted: Wanted, name: str, path: Path) -> dict[str, Any]:
        key = f"{wanted.id}/learner-{self._learner}/{name}"
        patiently(lambda: self._store.put_file(key, path), PATIENCE)
        return {"path": key, "size": path.stat().st_size}

    def _remove_old(self, new: str) -> None:
        """Their ids begin with the time, and so sort by it."""
        stored = [entry.key for entry in patiently(self._store.list, PATIENCE)]
        kept = sorted({key.partition("/")[0] for key in stored} - {new})[-(_KEPT - 1) :]
        if old := [key for key in stored if key.partition("/")[0] not in (new, *kept)]:
            patiently(lambda: self._store.delete(old), PATIENCE)

    def _tell(self, wanted: Wanted, text: str) -> None:
        """An event of the job."""
        with contextlib.suppress(TrainerError, Fenced):
            self._api.profile(wanted.id, text)


def _answer_pings(stream: Stream) -> None:
    """The connection answers pings while it is read."""
    with contextlib.suppress(Closed):
        while True:
            stream.receive()


def _wanted(asked: Mapping[str, Any]) -> Wanted:
    from weft_trainer.program.profiles import Wanted

    name, steps, seconds = asked.get("profile"), asked.get("steps"), asked.get("seconds")
    if not isinstance(name, str) or not re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", name):
        raise ValueError(f"profile: expected an id such as 20260131-081500-4f2a, not {str(name)[:100]!r}")
    if not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS:
        raise ValueError(f"steps: expected a number from 1 to {_MOST_STEPS}, not {str(steps)[:100]!r}")
    if seconds is not None and not (isinstance(seconds, int | float) and 1 <= seconds <= _MOST_SECONDS):
        raise ValueError(f"seconds: expected a number from 1 to {_MOST_SECONDS}, not {str(seconds)[:100]!r}")
    return Wanted(name, steps, seconds)
