"""FfDL's log files: ``training-log.txt`` and ``user_log.txt``, which programs write under LOG_DIR, are log, too."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from weft_trainer.growing import Identity, open_regular
from weft_trainer.log.lines import LineAssembler
from weft_trainer.log.output import Output, write_bytes

NAMES = frozenset({"training-log.txt", "user_log.txt"})
_EVERY = 0.5
_CHUNK = 1 << 20


class _Followed:
    def __init__(self, prefix: str) -> None:
        self.assembler = LineAssembler(prefix)
        self.identity = Identity()
        self.offset = 0


class LogTail:
    """Follows the files in a thread; lines of a subfolder's file carry the folder's name."""

    def __init__(self, folder: Path, output: Output) -> None:
        self._folder = folder
        self._output = output
        self._files: dict[Path, _Followed] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Read on to the end of every file, then stop."""
        self._stop.set()
        self._thread.join()
        self._read_all()
        for followed in self._files.values():
            self._output.write(followed.assembler.close())

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            self._read_all()

    def _read_all(self) -> None:
        for folder, _, names in os.walk(self._folder):
            for name in sorted(NAMES.intersection(names)):
                try:
                    self._read(Path(folder, name))
                except OSError:
                    continue  # removed or replaced meanwhile: the next read shows

    def _read(self, path: Path) -> None:
        with open_regular(path) as file:
            followed = self._files.get(path)
            if followed is None:
                subfolder = path.parent.relative_to(self._folder)
                followed = self._files[path] = _Followed("" if subfolder == Path(".") else f"[{subfolder}] ")
            if not followed.identity.is_same(file, followed.offset):
                self._output.write(followed.assembler.close())
                followed.offset = 0
            followed.identity.remember(file)
            # Never more than there is: a large buffer that shrinks afterwards leaves holes in the agent's memory.
            size = os.fstat(file).st_size
            while chunk := os.pread(file, min(_CHUNK, size - followed.offset), followed.offset):
                followed.offset += len(chunk)
                write_bytes(self._output, followed.assembler, chunk)
