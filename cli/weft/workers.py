"""Workers for a notebook: `launch_workers`, `await_workers`, `list_workers`, `stop_workers`.

    >>> ids = weft.launch_workers(n=2, cpu=2, memory=4, nvidia_gpu=1, script="train.py")
    >>> for worker in weft.await_workers(ids, timeout_seconds=120):
    ...     print(worker["address"], worker["port"])

The functions have the names and arguments of Cloudera Machine Learning's workers API. The workers of one call are one
job, a gang: all of them start, or none. They end with the process that launched them, which renews a lease on them: if
it is killed, the server halts them within a minute. `docs/workers-api.md` is the user's page.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from weft.client import Client
from weft.errors import Conflict, NotFound, WaitTimeout, WeftError
from weft.models import LearnerStatus
from weft.resources.jobs import Job

GANG_LABEL, SESSION_LABEL = "weft.workers", "weft.session"
_LEASE_SECONDS = 45
"""How long the server waits for a sign of life of this process."""
_RENEW_SECONDS = 10.0
_LAST_GRACE = 10  # seconds that workers have to end when this process does
_LOOK = 0.25
_GIVING_BACK = 60.0
_STARTED = ("PROCESSING", "STORING", "EXITED")

Worker = dict[str, Any]
"""``id``, ``status`` (starting, running, succeeded, failed or stopped), ``reason``, ``address`` and ``port`` (kept free
for the script, which finds it in WEFT_PORT), ``node``, ``exit_code``, ``job``."""


class WorkersError(WeftError):
    """The workers did not all start, or did not all succeed. ``failures`` are those; a gang that did not start is given
    back whole."""

    def __init__(self, message: str, failures: Sequence[Worker] = ()) -> None:
        super().__init__(message)
        self.failures = list(failures)


class WorkersTimeout(WorkersError, WaitTimeout):
    """The time ran out."""


def launch_workers(
    n: int = 1,
    cpu: float = 1,
    memory: float = 2,
    nvidia_gpu: int = 0,
    script: str | Path = "",
    code: str = "",
    *,
    args: Sequence[object] = (),
    env: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    framework: str = "pytorch",
    version: str | None = None,
    launcher: str = "none",
    engine: str | None = None,
    name: str | None = None,
    idle_minutes: float | None = 60,
    client: Client | None = None,
) -> list[str]:
    """Queue ``n`` workers, which start together as soon as there is room for all of them.

    Args:
        n: how many.
        cpu: CPUs of each.
        memory: GiB of each.
        nvidia_gpu: GPUs of each.
        script: a Python file that each of them runs; its folder is sent along (without the files that .gitignore or
            .weftignore names). Inside it, ``RANK`` and ``WORLD_SIZE`` say which worker it is, ``MASTER_ADDR`` and
            ``MASTER_PORT`` where the first one is (with ``n`` > 1), ``WEFT_PORT`` which port is its own to listen on.
        code: Python code to run, instead of a script.
        args: the script's arguments.
        env: environment variables.
        folder: the folder that is sent instead of the script's own folder; it contains the script.
        framework: which environment they run in: python (numpy alone), pytorch, tensorflow, horovod, ray, ….
        version: of the framework; default: the newest there is.
        launcher: ``none`` runs the script once in each worker; ``torchrun`` and ``horovod`` make them one training.
        engine: where they run; default: the server's.
        name: of their job; default: the script's.
        idle_minutes: end them when none of them has printed a line or used 5 % of a CPU or GPU for this time; None:
            never.
        client: default: :class:`weft.Client` as the environment and the profile say.

    Returns:
        An id for each worker. :func:`await_workers` waits for them.

    Raises:
        InvalidManifest: the server can't ever have such workers; ``problems`` says why.
        WeftError: another refusal; nothing was started.
    """
    if bool(script) == bool(code):
        raise WeftError("launch_workers takes either a script or code" + (", not both" if code else ""))
    if idle_minutes is not None and idle_minutes <= 0:
        raise WeftError(f"idle_minutes: found {idle_minutes}, accepted is a positive number, or None for no limit")
    client = client or _session.client()
    with tempfile.TemporaryDirectory(prefix="weft-workers-") as scratch:
        root, program = _program(script, code, folder, Path(scratch))
        manifest = {
            "name": (name or (Path(script).stem if script else "") or "workers")[:63],
            "labels": {GANG_LABEL: "gang", SESSION_LABEL: _session.id},
            "learners": n,
            "cpus": cpu,
            "gpus": nvidia_gpu,
            "memory": f"{memory} GiB",
            "framework": {
                "name": framework,
                "launcher": launcher,
                "command": shlex.join(["python", program, *map(str, args)]),
                **({"version": version} if version else {}),
            },
            "env": {"PYTHONUNBUFFERED": "1", **(env or {})},
            **({"engine": engine} if engine else {}),
        }
        keepalive = {"seconds": _LEASE_SECONDS}
        if idle_minutes is not None:
            keepalive["idle_seconds"] = max(5, round(idle_minutes * 60))
        job = client.train(manifest, root, keepalive=keepalive)
    _session.keep(client, job.id)
    return [_id(job.id, number) for number in range(1, n + 1)]


def await_workers(
    ids: str | Worker | Iterable[str | Worker],
    wait_for_completion: bool = False,
    timeout_seconds: float | None = 60,
    *,
    client: Client | None = None,
) -> list[Worker]:
    """Block until all workers run (or, with ``wait_for_completion``, until all have ended well).

    Args:
        ids: the ids that :func:`launch_workers` returned.
        wait_for_completion: wait for the end of their script.
        timeout_seconds: None or 0: no limit.
        client: as for :func:`launch_workers`.

    Returns:
        The workers in the order of ``ids``, each with its ``address`` and ``port``.

    Raises:
        WorkersTimeout: they did not all start in time. None of them runs then: all are given back. (With
            ``wait_for_completion``, workers that do run go on.)
        WorkersError: they can't start, were stopped, or failed; those that are left are given back.
    """
    client = client or _session.client()
    wanted = _ids(ids)
    jobs = list(dict.fromkeys(_job_of(worker_id) for worker_id in wanted))
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    while True:
        found = {job_id: client.jobs.get(job_id) for job_id in jobs}
        workers = [_worker(found[_job_of(worker_id)], worker_id) for worker_id in wanted]
        bad = [job for job in found.values() if _failed(job, started_is_enough=not wait_for_completion)]
        if bad:
            _give_back(client, [job_id for job_id in jobs if job_id not in {job.id for job in bad}])
            words = "; ".join(f"{job.name} is {job.state}: {job.reason}" for job in bad)
            raise WorkersError(words, [worker for worker in workers if worker["status"] != "succeeded"])
        if all(_done(job) if wait_for_completion else _runs(job) for job in found.values()):
            return workers
        if deadline is not None and time.monotonic() > deadline:
            late = [worker for worker in workers if worker["status"] in ("starting", "running")]
            if wait_for_completion and all(_runs(job) for job in found.values()):
                raise WorkersTimeout(f"{_count(late)} still at work after {timeout_seconds:g} s", late)
            why = "; ".join(dict.fromkeys(_why(job) for job in found.values() if not _runs(job)))
            _give_back(client, jobs)
            raise WorkersTimeout(
                f"the workers did not all start within {timeout_seconds:g} s, so none of them runs ({why})", late
            )
        time.sleep(_LOOK)


def list_workers(*, all_sessions: bool = False, client: Client | None = None) -> list[Worker]:
    """The workers that this process has launched, ended ones too; newest first.

    Args:
        all_sessions: those that anybody of the project has launched and that have not ended yet.
        client: as for :func:`launch_workers`.
    """
    client = client or _session.client()
    label = f"{GANG_LABEL}=gang" if all_sessions else f"{SESSION_LABEL}={_session.id}"
    states = ["QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING"] if all_sessions else None
    found = []
    for listed in client.jobs.list(label=label, state=states):
        try:
            job = client.jobs.get(listed.id)
        except NotFound:
            continue  # deleted meanwhile
        found += [_worker(job, _id(job.id, number)) for number in range(1, job.learners + 1)]
    return found


def stop_workers(*ids: str | Worker | Iterable[str | Worker], client: Client | None = None) -> list[Worker]:
    """End workers: SIGTERM, after ten seconds SIGKILL. Returns at once.

    Args:
        ids: workers, all of a launch: they are one gang. None: all that this process has launched.
        client: as for :func:`launch_workers`.

    Raises:
        WorkersError: only some of a launch are named; nothing was stopped.
    """
    client = client or _session.client()
    named = [worker_id for some in ids for worker_id in _ids(some)]
    if not ids:
        named = [worker["id"] for worker in list_workers(client=client) if worker["status"] in ("starting", "running")]
    jobs = {job_id: client.jobs.get(job_id) for job_id in dict.fromkeys(_job_of(worker_id) for worker_id in named)}
    for job in jobs.values():
        whole = [_id(job.id, number) for number in range(1, job.learners + 1)]
        if left := [worker_id for worker_id in whole if worker_id not in named]:
            raise WorkersError(
                f"workers that were launched together stop together: {', '.join(left)} would be left alone"
            )
    for job_id in jobs:
        _halt(client, job_id)
        _session.forget(job_id)
    return [_worker(client.jobs.get(_job_of(worker_id)), worker_id) for worker_id in named]


# --- one worker -------------------------------------------------------------------------------------------------------


def _id(job_id: str, number: int) -> str:
    return f"{job_id}.{number}"


def _job_of(worker_id: str) -> str:
    job_id, dot, number = worker_id.rpartition(".")
    if not dot or not number.isdecimal():
        raise WeftError(f"{worker_id!r} is no id of a worker: launch_workers returns them")
    return job_id


def _ids(given: str | Worker | Iterable[str | Worker]) -> list[str]:
    several = [given] if isinstance(given, str | dict) else list(given)
    return [worker if isinstance(worker, str) else str(worker["id"]) for worker in several]


def _learners(job: Job) -> tuple[LearnerStatus, ...]:
    return job.attempts[-1].learners if job.attempts else ()


def _worker(job: Job, worker_id: str) -> Worker:
    number = int(worker_id.rpartition(".")[2])
    if not 1 <= number <= job.learners:
        raise WeftError(f"{worker_id}: {job.id} has {job.learners} workers")
    learner = next((status for status in _learners(job) if status.learner == number), None)
    ports = learner.ports if learner else ()
    return {
        "id": worker_id,
        "status": _status(job, learner),
        "reason": (learner.exit_reason if learner else None) or job.reason,
        "address": learner.address if learner else None,
        "port": ports[-1] if ports else None,
        "node": learner.node if learner else None,
        "exit_code": learner.exit_code if learner else None,
        "job": job.id,
    }


def _status(job: Job, learner: LearnerStatus | None) -> str:
    if learner is not None and learner.phase == "EXITED" and learner.exit_code == 0:
        return "succeeded"
    if job.is_terminal:
        return {"COMPLETED": "succeeded", "HALTED": "stopped"}.get(job.state, "failed")
    if job.desired != "RUNNING":
        return "stopped"
    if learner is not None and learner.phase == "EXITED":
        return "failed"
    return "running" if _runs(job) else "starting"


def _runs(job: Job) -> bool:
    """Whether all of a gang have come to their script."""
    if job.state in ("QUEUED", "PENDING", "DOWNLOADING"):
        return False  # also when an earlier attempt had come further
    learners = _learners(job)
    return len(learners) == job.learners and all(learner.phase in _STARTED for learner in learners)


def _done(job: Job) -> bool:
    return job.state == "COMPLETED"


def _failed(job: Job, *, started_is_enough: bool) -> bool:
    """Whether a gang can't reach the awaited state any more."""
    if job.desired != "RUNNING" and not job.is_terminal:
        return True
    if not job.is_terminal or _done(job):
        return False
    return not (started_is_enough and job.state == "FAILED" and _runs(job) and job.started_at is not None)


def _why(job: Job) -> str:
    return f"{job.state}: {job.condition or job.reason}"


def _count(workers: Sequence[Worker]) -> str:
    return f"{len(workers)} worker is" if len(workers) == 1 else f"{len(workers)} workers are"


def _program(script: str | Path, code: str, folder: str | Path | None, scratch: Path) -> tuple[Path, str]:
    """The folder to send, and the program in it."""
    if code:
        if folder is not None:
            raise WeftError("folder goes with a script: code is sent alone")
        (scratch / "worker.py").write_text(code, encoding="utf-8")
        return scratch, "worker.py"
    path = Path(script)
    root = Path(folder) if folder is not None else path.parent
    inside = path if folder is None or path.is_absolute() or path.exists() else root / path
    if not inside.is_file():
        raise WeftError(f"script: there is no file {inside}")
    if not inside.resolve().is_relative_to(root.resolve()):
        raise WeftError(f"script: {inside} does not lie in the folder {root} that is sent")
    return root, str(PurePosixPath(inside.resolve().relative_to(root.resolve())))


def _halt(client: Client, job_id: str) -> None:
    with contextlib.suppress(Conflict, NotFound):  # it has ended by itself
        client.jobs.halt(job_id, _LAST_GRACE)


def _give_back(client: Client, jobs: Sequence[str]) -> None:
    """Stop gangs, and wait until their resources are free."""
    for job_id in jobs:
        _halt(client, job_id)
        _session.forget(job_id)
    for job_id in jobs:
        try:
            client.jobs.wait(job_id, _GIVING_BACK, check=False)
        except (WaitTimeout, NotFound):
            continue


# --- this process -----------------------------------------------------------------------------------------------------


class _Session:
    """The workers that this process has launched. A thread reports to the server that the process lives. The process
    also reports its end; if it can't, the server notices."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._kept: dict[str, Client] = {}
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._pid = 0  # of the process that renews

    def client(self) -> Client:
        """The client that is used if none is given."""
        with self._lock:
            if self._client is None:
                self._client = Client()
            return self._client

    def keep(self, client: Client, job_id: str) -> None:
        with self._lock:
            self._kept[job_id] = client
            if self._pid != os.getpid():
                self._pid = os.getpid()
                threading.Thread(target=self._renew, name="weft-workers", daemon=True).start()
                atexit.register(self._end)

    def forget(self, job_id: str) -> None:
        with self._lock:
            self._kept.pop(job_id, None)

    def _renew(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with self._lock:
                kept = list(self._kept.items())
            for job_id, client in kept:
                try:
                    client.jobs.keep_alive(job_id)
                except (Conflict, NotFound):
                    self.forget(job_id)  # it has ended
                except WeftError:
                    pass  # away: the next round tells
                except RuntimeError:
                    return  # the client was closed: so the interpreter ends

    def _end(self) -> None:
        if self._pid != os.getpid():
            return  # a fork of the process that they belong to
        for job_id, client in list(self._kept.items()):
            try:
                _halt(client, job_id)
            except Exception:  # noqa: S112 - at exit nobody is left to hear of it, and the lease runs out
                continue


_session = _Session()
