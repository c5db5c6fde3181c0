"""Processes that bring many small objects, which cost processor time rather than bandwidth: one Python process uses one
core. ``python -m weft_trainer.inputs.fetch_worker`` is such a process. Its orders, credentials and all, come on its
standard input, and it ends when its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from weft_trainer.config import RUNTIME, TOKEN_VARIABLE
from weft_trainer.errors import DataError
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.fetcher import Fetcher, Item, Tally
from weft_trainer.inputs.progress import Progress
from weft_trainer.machine.prctl import hide_environment

BATCH = 256


def fetch_by_processes(
    cache: NodeCache, patience: float, items: Sequence[Item], processes: int, own: Fetcher, progress: Progress
) -> Tally:
    """Bring ``items`` by ``own`` and so many more processes. Raises: DataError."""
    batches: queue.SimpleQueue[list[Item]] = queue.SimpleQueue()
    for start in range(0, len(items), BATCH):
        batches.put(list(items[start : start + BATCH]))
    whole = Tally()
    failures: list[BaseException] = []
    lock = threading.Lock()

    def work(run: Any) -> None:
        try:
            while not failures:
                done = run(batches.get_nowait(), progress)
                with lock:
                    whole.fetched += done.fetched
                    whole.cached += done.cached
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)

    helpers = [_Helper(cache, patience) for _ in range(processes)]
    try:
        threads = [threading.Thread(target=work, args=(run,)) for run in (own.run, *(helper.run for helper in helpers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for helper in helpers:
            helper.end()
    if failures:
        raise failures[0]
    return whole


class _Helper:
    """The near end of a worker."""

    def __init__(self, cache: NodeCache, patience: float) -> None:
        env = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(RUNTIME), env.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weft_trainer.inputs.fetch_worker"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._setting: tuple[str, int, float] | None = (str(cache.folder), cache.limit, patience)

    def run(self, items: Sequence[Item], progress: Progress) -> Tally:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if self._setting:
                pickle.dump(self._setting, self._process.stdin)
                self._setting = None
            pickle.dump(items, self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)  # noqa: S301 - our own program, through a pipe of our own
        except (OSError, EOFError, pickle.UnpicklingError):
            raise DataError(f"a process that downloads ended too early (code {self._process.wait()})") from None
        if isinstance(answer, DataError):
            raise answer
        assert isinstance(answer, Tally)
        progress.cached(answer.cached, answer.cached_bytes)
        progress.came(sum(item.stored.size for item in items) - answer.cached_bytes)
        progress.brought(answer.fetched)
        return answer

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """The worker itself."""
    folder, limit, patience = pickle.load(orders)  # noqa: S301
    fetcher = Fetcher(NodeCache(Path(folder), limit), patience)
    unheard = Progress("", lambda _: None)
    while True:
        items = pickle.load(orders)  # noqa: S301
        try:
            answer: Tally | DataError = fetcher.run(items, unheard)
        except DataError as error:
            answer = DataError(str(error))
        except OSError as error:
            answer = DataError(f"this node's disk: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    hide_environment()
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # threads of an abandoned download must not hold the process
