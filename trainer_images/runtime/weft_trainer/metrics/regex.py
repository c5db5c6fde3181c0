"""``regex_extractor``: the agent's side. The log goes to a helper process (:mod:`.regex_worker`), records come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from weft_trainer.config import RUNTIME, TOKEN_VARIABLE
from weft_trainer.log.lines import Line
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.metrics.records import Record
from weft_trainer.metrics.shipper import MetricShipper

_WAITING_BYTES = 8 << 20
_TELL = 60.0


class RegexExtractor:
    """Never keeps the program waiting: lines for which the expressions have no time are left out.

    Args:
        say: writes a line into the job's log.
    """

    def __init__(
        self,
        lookahead: int,
        groups: Mapping[str, Mapping[str, Any]],
        shipper: MetricShipper,
        say: Callable[[str], None],
        watchdog: Watchdog,
    ) -> None:
        task = {"lookahead": lookahead, "groups": {label: dict(form) for label, form in groups.items()}}
        self._shipper = shipper
        self._say = say
        self._watchdog = watchdog
        self._changed = threading.Condition()
        self._waiting = [json.dumps(task).encode()]
        self._size = 0
        self._left_out = 0
        self._told_at = float("-inf")
        self._ended = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        env = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.regex_worker"],
            env={**env, "PYTHONPATH": str(RUNTIME), "PYTHONIOENCODING": "utf-8:surrogatepass"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._watchdog.adopt(self._process.pid)
        for work in (self._write, self._read):
            self._threads.append(threading.Thread(target=work, name="regex", daemon=True))
            self._threads[-1].start()

    def feed(self, lines: Sequence[Line]) -> None:
        """From any thread."""
        with self._changed:
            for line in lines:
                if self._size > _WAITING_BYTES:
                    self._left_out += 1
                    continue
                entry = json.dumps([line.time, line.source, line.text[len(line.source) :]]).encode()
                self._waiting.append(entry)
                self._size += len(entry)
            self._changed.notify_all()
        self._tell()

    def finish(self, seconds: float) -> None:
        """Wait for the records of the last lines, for at most ``seconds``."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._say("weft: metrics: the regular expressions did not get to the end of the log in time")
        self._process.kill()
        self._process.wait()
        self._watchdog.disown(self._process.pid)

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._ended)
                    waiting, self._waiting, self._size = self._waiting, [], 0
                if not waiting:
                    return
                self._process.stdin.write(b"\n".join(waiting) + b"\n")
                self._process.stdin.flush()
        except OSError:
            return  # the helper process has ended, which the reader reports
        finally:
            with suppress(OSError):
                self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "say" in answer:
                self._say(f"weft: metrics: {answer['say']}")
                continue
            self._shipper.write([Record(**answer)])
        with self._changed:
            ended = self._ended
        if not ended:
            self._say("weft: metrics: the process that tries the regular expressions has ended: nothing is extracted")

    def _tell(self) -> None:
        now = time.monotonic()
        if self._left_out and now - self._told_at > _TELL:
            self._told_at = now
            self._say(
                f"weft: metrics: the log comes faster than regular expressions can be tried on it: {self._left_out:,} "
                "lines were left out so far"
            )
