"""Argon2 in processes of its own.

Argon2 is slow by design, takes 64 MiB at a time, and fills several threads. In the process that answers requests it
holds up all of them, whatever the priority of its threads: they meet at the lock of the process's memory and at the
interpreter's.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading

from weft_core.tokens import hash_password, verify_password

_IDLE = 60.0
"""Seconds without a request after which a process ends; the next request starts another one."""
_NICE = 5
"""On a busy machine, a process gets a third of the processor time that a request gets. A larger value would make
sign-ins too slow there."""


class Hasher:
    """One process, which answers one request at a time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def hash(self, password: str) -> str:
        """The hash of a new password. Raises OSError when no process can be started."""
        answer = self._ask(password, None)
        assert isinstance(answer, str)
        return answer

    def verify(self, password: str, hashed: str) -> bool:
        """Raises OSError when no process can be started."""
        return self._ask(password, hashed) is True

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, password: str, hashed: str | None) -> object:
        question = json.dumps([password, hashed]).encode() + b"\n"
        with self._lock:
            for _ in range(2):  # it may have ended just now, because it was idle
                process = self._process or self._start()
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    process.stdin.write(question)
                    process.stdin.flush()
                    if line := process.stdout.readline():
                        answer: object = json.loads(line)
                        return answer
                except BrokenPipeError:
                    pass
                self._end()
        raise OSError("the process that hashes passwords has ended")

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "weft_core.hashing"]
        # A session of its own: the keys that stop `weft up` are for the API, which ends this process.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _serve() -> None:
    """Answer until nobody asks any more, or the process that asks has ended."""
    os.nice(_NICE)
    while select.select([sys.stdin.buffer], [], [], _IDLE)[0] and (line := sys.stdin.buffer.readline()):
        password, hashed = json.loads(line)
        answer = hash_password(password) if hashed is None else verify_password(password, hashed)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
