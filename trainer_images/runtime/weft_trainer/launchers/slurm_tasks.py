"""The tasks of a step in one learner."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from weft_trainer.launchers.slurm_gang import Message

FOLDERS = [
    "MODEL_DIR",
    "DATA_DIR",
    "RESULT_DIR",
    "RESULT_BUCKET_DIR",
    "CHECKPOINT_DIR",
    "LOG_DIR",
    "JOB_STATE_DIR",
    "PRETRAINED_DIR",
    "WEFT_STREAM_DIR",
    "SLURM_TMPDIR",
    "VIRTUAL_ENV",
]
"""The variables whose folders each learner has for itself."""
_KILL_SECONDS = 30.0
"""From SIGTERM to SIGKILL for a step that is ended; Slurm's own KillWait."""
_OUTPUT_SECONDS = 2.0


def translator(theirs: Mapping[str, Sequence[str]], mine: Mapping[str, str]) -> Callable[[str], str]:
    """Replaces paths of another learner's folders by the paths of this learner's.

    Args:
        theirs: the other learner's folders, by the names of their variables; each by one or two paths.
        mine: this learner's environment.
    """
    pairs = {path: mine[name] for name, paths in theirs.items() for path in paths if mine.get(name, path) != path}
    if not pairs:
        return lambda text: text
    paths = "|".join(re.escape(path) for path in sorted(pairs, key=len, reverse=True))
    pattern = re.compile(rf"(?:{paths})(?![\w.-])")
    return lambda text: pattern.sub(lambda found: pairs[found[0]], text)


class Step:
    """The tasks of a step that this learner runs. They stay in the process group of the node, so that the agent stops
    and kills them as it does any program.

    Args:
        request: ``argv``, ``chdir``, ``folders`` (see :func:`translator`), ``changes`` (variables that the batch script
            has set, or removed: None), ``environment`` of all tasks, ``tasks`` (number and variables of each),
            ``label``, ``output`` and ``error`` (files), ``append``, ``input`` (base64), ``gpus`` of each (None: all).
        base: this learner's environment.
        ended: called with an answer to the request whenever a task has ended.
    """

    def __init__(self, request: Message, base: Mapping[str, str], ended: Callable[[Message], None]) -> None:
        here = translator(request["folders"], base)
        self._argv = [here(word) for word in request["argv"]]
        self._folder = here(request["chdir"])
        self._env = dict(base)
        for name, value in request["changes"].items():
            if value is None:
                self._env.pop(name, None)
            else:
                self._env[name] = here(value)
        self._env |= request["environment"]
        self._request = request
        self._here = here
        self._ended = ended
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._changed = threading.Condition()
        self._print = threading.Lock()

    def start(self) -> None:
        for task in self._request["tasks"]:
            try:
                self._start(task)
            except OSError as error:
                where = error.filename if error.filename is not None else self._argv[0]
                code = 127 if isinstance(error, FileNotFoundError) else 126
                self._ended({"task": task["number"], "code": code, "reason": f"{where}: {error.strerror}"})

    def signal(self, number: int) -> None:
        """Signal all processes of the tasks."""
        import psutil  # 20 ms that no start should wait for

        with self._changed:
            pids = [popen.pid for popen in self._running.values()]
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                task = psutil.Process(pid)
                for process in (*task.children(recursive=True), task):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)

    def end(self) -> None:
        """SIGTERM, and SIGKILL for what is left after a while. Returns when all tasks have ended."""
        self.signal(signal.SIGTERM)
        if not self.wait(_KILL_SECONDS):
            self.signal(signal.SIGKILL)
            self.wait(None)

    def wait(self, timeout: float | None) -> bool:
        """Wait until all tasks have ended. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def _start(self, task: Mapping[str, Any]) -> None:
        if not os.path.isdir(self._folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", self._folder)
        number = task["number"]
        label = f"{number}: " if self._request["label"] else ""
        to_file = self._file("output", task)
        # Lines of several tasks must not run into each other. A file is opened to append, which keeps them apart.
        piped = bool(label) or (to_file is None and len(self._request["tasks"]) > 1)
        with contextlib.ExitStack() as stack:
            if to_file is not None:
                stack.enter_context(to_file)
            errors = self._file("error", task)
            if errors is not None:
                stack.enter_context(errors)
            popen = subprocess.Popen(
                self._argv,
                cwd=self._folder,
                env=self._env | task["environment"] | self._devices(task),
                stdin=stack.enter_context(self._input()),
                stdout=subprocess.PIPE if piped else to_file,
                stderr=errors or subprocess.STDOUT,
            )
            target = os.dup(to_file.fileno() if to_file is not None else 1) if piped else -1
        with self._changed:
            self._running[number] = popen
        pump = threading.Thread(target=self._pump, args=(popen.stdout, target, label.encode()), daemon=True)
        if piped:
            pump.start()
        threading.Thread(target=self._wait, args=(number, popen, pump if piped else None), daemon=True).start()

    def _wait(self, number: int, popen: subprocess.Popen[bytes], pump: threading.Thread | None) -> None:
        code = popen.wait()
        if pump is not None:
            pump.join(_OUTPUT_SECONDS)  # a process that the task has left behind may hold the pipe open
        self._ended({"task": number, "code": code})
        with self._changed:
            del self._running[number]
            self._changed.notify_all()

    def _pump(self, pipe: IO[bytes], target: int, label: bytes) -> None:
        """Copy whole lines. A progress bar's carriage return ends a line, too."""
        rest = b""
        while data := os.read(pipe.fileno(), 65536):
            *lines, rest = re.split(rb"(?<=\n)|(?<=\r)(?!\n)", rest + data)
            self._write(target, [label + line for line in lines])
        if rest:
            self._write(target, [label + rest + b"\n"])
        os.close(target)

    def _write(self, target: int, lines: Sequence[bytes]) -> None:
        with self._print:
            left = b"".join(lines)
            while left:
                left = left[os.write(target, left) :]

    def _file(self, stream: str, task: Mapping[str, Any]) -> IO[bytes] | None:
        """The file for a stream of a task; None: the log."""
        pattern = self._request[stream]
        if pattern is None:
            return None
        if pattern == "none":
            return open(os.devnull, "ab")
        env = self._env | task["environment"]
        path = os.path.join(self._folder, self._here(file_name(pattern, env)))
        if not self._request["append"] and (int(env["SLURM_LOCALID"]) == 0 or "%t" in pattern):
            open(path, "wb").close()
        return open(path, "ab")

    def _devices(self, task: Mapping[str, Any]) -> dict[str, str]:
        """The GPUs that a task may use, if the step shares them out."""
        each = self._request["gpus"]
        if not each:
            return {}
        given = self._env.get("CUDA_VISIBLE_DEVICES")
        devices = given.split(",") if given else list(map(str, range(int(self._env.get("SLURM_GPUS_ON_NODE", "0")))))
        at = int(task["environment"]["SLURM_LOCALID"]) * each
        if len(devices) < at + each:
            raise OSError(errno.ENODEV, f"{each} GPUs for each task are requested, and the learner has {len(devices)}")
        return {"CUDA_VISIBLE_DEVICES": ",".join(devices[at : at + each]), "SLURM_GPUS_PER_TASK": str(each)}

    def _input(self) -> IO[bytes]:
        if not self._request["input"]:
            return open(os.devnull, "rb")
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        file.write(b64decode(self._request["input"]))
        file.seek(0)
        return file


def file_name(pattern: str, env: Mapping[str, str]) -> str:
    """A name with Slurm's patterns replaced: ``out-%j-%t.log``."""
    names = {
        "A": "SLURM_ARRAY_JOB_ID",
        "a": "SLURM_ARRAY_TASK_ID",
        "j": "SLURM_JOB_ID",
        "J": "SLURM_JOB_ID",
        "s": "SLURM_STEP_ID",
        "N": "SLURMD_NODENAME",
        "n": "SLURM_NODEID",
        "t": "SLURM_PROCID",
        "u": "USER",
        "x": "SLURM_JOB_NAME",
    }

    def put(found: re.Match[str]) -> str:
        if found[2] == "%":
            return "%"
        name = names.get(found[2])
        value = env.get(name, "") if name else found[0]
        return value.zfill(int(found[1])) if name and found[1] else value

    return re.sub(r"%(\d*)([A-Za-z%])", put, pattern)
