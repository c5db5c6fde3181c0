"""The actor of one learner: prepares its node, runs the agent under a guard, passes orders on.

Pickled by value, so that the nodes need nothing of Weft: standard library only, and no module-level state.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_STALE = 3600.0
"""A work folder that is this many seconds old and not locked comes from a node that has crashed."""
# Variables for the cluster's own Ray, Python and libraries, which learners must not have: a user's `ray.init()` would
# join the platform's cluster, with its token.
_DROPPED_PREFIXES = ("RAY_", "PYTHON", "WEFT_", "CONDA_", "SPT_")
_DROPPED = frozenset({"VIRTUAL_ENV", "LD_PRELOAD", "OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE", "PWD", "OLDPWD"})
_PROBE = """
import sys
from importlib.util import find_spec
print(*sys.version_info[:2], *(name for name in sys.argv[1:] if find_spec(name) is None))
"""
_NEEDED = ("psutil",)
_OLDEST = (3, 11)


class Learner:
    """The driver calls these methods, several at a time, or the process of a run with one learner does."""

    def __init__(self, run_name: str, rank: int) -> None:
        self._name = f"{run_name}-{rank}"
        self._rank = rank
        self._guard: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._report: dict[str, Any] = {}
        self._starting, self._ordering = threading.Lock(), threading.Lock()
        self._first: dict[str, Any] = {}

    def start(self, request: dict[str, Any], agent: bytes, digest: str, address: str) -> dict[str, Any]:
        """Start the agent, at most once. Returns ``{"started": pid}``, or ``{"failed": why}``."""
        with self._starting:
            if not self._first:
                try:
                    code = _unpack(node_folder(), agent, digest)
                except OSError as error:
                    self._first = {"failed": f"the agent can't be put on the node: {error}"}
                else:
                    self._first = self.start_here(request, code, address)
            return self._first

    def start_here(self, request: dict[str, Any], code: Path, address: str) -> dict[str, Any]:
        """Start the agent from its code in the folder ``code``, which exists already."""
        try:
            root = node_folder()
        except OSError as error:
            return {"failed": f"the folder for learners on the node can't be made: {error}"}
        _sweep(root / "runs")
        python = request["python"] or sys.executable
        if problem := probe(python, request["image"]):
            return {"failed": problem}
        work = root / "runs" / self._name
        shutil.rmtree(work, ignore_errors=True)
        plan = {
            "argv": [python, "-m", "weft_trainer"],
            "env": self._environment(request, root, code, python, address),
            "work": str(work),
        }
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(code / "weft_trainer" / "ray_gang" / "guard.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._order(plan)
        assert self._guard.stdout is not None
        reports = self._guard.stdout
        first = dict(json.loads(reports.readline() or b'{"failed": "the guard of the learner was killed"}'))
        if "started" in first:
            threading.Thread(target=self._listen, args=(reports,), daemon=True).start()
        return first

    def wait(self) -> dict[str, Any]:
        """Wait for the agent's end. Returns how it has ended, also if called again."""
        self._ended.wait()
        return self._report

    def ended(self, timeout: float) -> dict[str, Any] | None:
        """Wait for the agent's end for at most ``timeout`` seconds; None: it has not ended."""
        return self._report if self._ended.wait(timeout) else None

    def stop(self, grace: float) -> None:
        """SIGTERM now, SIGKILL after ``grace`` seconds."""
        with contextlib.suppress(OSError):  # it has ended
            self._order({"stop": grace})

    def _order(self, what: dict[str, Any]) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        with self._ordering:
            self._guard.stdin.write(json.dumps(what).encode() + b"\n")

    def _listen(self, reports: io.RawIOBase) -> None:
        line = reports.readline()
        self._report = json.loads(line) if line else {"exit_code": -9, "killed": "its guard was killed"}
        self._ended.set()

    def _environment(
        self, request: dict[str, Any], root: Path, code: Path, python: str, address: str
    ) -> dict[str, str]:
        work = root / "runs" / self._name
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_DROPPED_PREFIXES) and name not in _DROPPED
        }
        return {
            **kept,
            "PATH": os.pathsep.join([str(Path(python).parent), kept.get("PATH", os.defpath)]),
            "PYTHONPATH": str(code),
            "PYTHONNOUSERSITE": "1",
            "HOME": str(work),
            "TERM": "dumb",
            "OMP_NUM_THREADS": str(max(1, int(request["cpus"]))),
            "WEFT_API_URL": request["api_url"],
            "WEFT_ATTEMPT_TOKEN": request["token"],
            "WEFT_RANK": str(self._rank),
            "WEFT_NUM_LEARNERS": str(request["learners"]),
            "WEFT_WORKDIR": str(work),
            "WEFT_CACHE_DIR": request.get("cache_dir") or str(root / "cache"),
            "WEFT_CACHE_SIZE": "" if request.get("cache_size") is None else str(request["cache_size"]),
            **({"TRACEPARENT": str(request["traceparent"])} if request.get("traceparent") else {}),
            "WEFT_ADVERTISE_ADDRESS": address,
        }


def node_folder() -> Path:
    """The folder in which learners work on a node: ``$WEFT_NODE_DIR`` of the node's Ray, or one in the folder of
    temporary files."""
    root = Path(os.environ.get("WEFT_NODE_DIR") or Path(tempfile.gettempdir()) / f"weft-{os.getuid()}")
    for folder in (root, root / "runs", root / "cache"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to somebody else")
    return root


def probe(python: str, image: str) -> str:
    """Why this interpreter can't run a learner; empty: it can."""
    what = f"image {image}: the Python of its environment, {python},"
    if python == sys.executable:
        what = f"no environment is set for image {image}, and the cluster's own Python, {python},"
        lacking = [name for name in _NEEDED if find_spec(name) is None]
        return _lack(what, python, lacking) if lacking else ""
    try:
        answer = subprocess.run(
            [python, "-I", "-c", _PROBE, *_NEEDED], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{what} does not run: {getattr(error, 'strerror', None) or error}"
    major, minor, *lacking = answer.stdout.split()
    if (int(major), int(minor)) < _OLDEST:
        return f"{what} is {major}.{minor}; learners need {_OLDEST[0]}.{_OLDEST[1]} or newer"
    return _lack(what, python, lacking) if lacking else ""


def _lack(what: str, python: str, names: list[str]) -> str:
    needed = " and ".join(names)
    return f"{what} lacks {needed}, which learners need: `{python} -m pip install {' '.join(names)}`"


def _unpack(root: Path, agent: bytes, digest: str) -> Path:
    """The folder for PYTHONPATH that holds the agent; all learners with the same agent share it."""
    target = root / f"agent-{digest}"
    if not target.is_dir():
        draft = Path(tempfile.mkdtemp(prefix=".agent-", dir=root))
        with zipfile.ZipFile(io.BytesIO(agent)) as archive:
            archive.extractall(draft)
        try:
            draft.rename(target)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not target.is_dir():  # else another learner was first
                raise
    return target


def _sweep(runs: Path) -> None:
    """Remove the work folders that a crash of the node has left."""
    for work in runs.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - work.stat().st_mtime < _STALE:
                continue
            lock = os.open(work / ".lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a guard holds it for as long as it lives
                shutil.rmtree(work, ignore_errors=True)
            finally:
                os.close(lock)
