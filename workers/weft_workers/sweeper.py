"""The sweeper, a process beside every worker: finds due jobs in Postgres and steps them, with Redis or without.

It is also the clock: only the sweeper steps a job that is due in two seconds. It also does the housekeeping, archives
logs, delivers notifications, moves sweeps on, and starts jobs that wait for others or for their time. ``python -m
weft_workers`` starts it (:mod:`weft_workers.sweeper_process`), and it ends when that does.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

import weft_core.libraries  # noqa: F401  (before all that imports the two)

# isort: split

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from sqlalchemy import and_, func, or_, select
from sqlalchemy.exc import DBAPIError

from weft_core.engine import EngineUnreachable
from weft_core.objects import StoreError
from weft_core.processes import collect_again, die_with_parent, few_arenas, name_process, return_memory
from weft_core.service_log import configure_logging
from weft_core.store.models import Attempt, Job
from weft_workers.archiving import Archiver
from weft_workers.audit_export import AuditExporter
from weft_workers.context import Context
from weft_workers.delivering import Deliverer
from weft_workers.duties import OtherDuties, QueueDuties, find_other_duties, find_queue_duties
from weft_workers.ended_keys import EndedKeys
from weft_workers.following import follow
from weft_workers.housekeeping import Housekeeping
from weft_workers.process import BadSettings, open_context, read_settings, wait_for_installation
from weft_workers.reconcile import step
from weft_workers.reconcile.admit import admit, due, observe
from weft_workers.retention import Retention
from weft_workers.scheduling import Schedules
from weft_workers.sweeping import Sweeps
from weft_workers.wakeups import WakeUps
from weft_workers.watching import make_due, wake_strangers, watch

log = structlog.get_logger(__name__)

NAME = "weft-sweeper"
"""Of its process, for `ps` and `top`: its command may be its worker's."""

_THREADS = 4
_BATCH = 200
_CHECK_EVERY = 10.0  # seconds between two checks of an engine
_SEARCH_EVERY = 0.1  # seconds between two searches for something to do
_REST = 1.0  # seconds more while no job waits or ends, and Redis tells of no change
_TIDY_EVERY = 600.0
_RETENTION_EVERY = 60.0
_ARCHIVE_EVERY = 5.0
_LAST_TRIES = 2.0  # seconds for the deliveries that are under way at the end
_EXPORT_EVERY = 5.0
_KEYS_EVERY = 2.0
_SHORTEST = 0.1  # seconds between two sweeps
_ENDINGS = 0.2  # seconds between two observations of runs that are ending


class Sweeper:
    """Sweeps until :meth:`stop` is called.

    Args:
        context: with at least as many connections as ``threads`` and one more.
        threads: steps at the same time.
    """

    def __init__(self, context: Context, threads: int = _THREADS) -> None:
        self._context = context
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="step")
        self._stopping = threading.Event()
        self._under_way: set[str] = set()
        self._gone: frozenset[str] = frozenset()
        """Runs that had ended at the last observation, and whose attempts had not."""
        self._at_rest = False
        """That no job waited or ended at the last search."""
        self._lock = threading.Lock()
        signals = [(duty, name) for duty in QueueDuties._fields for name in context.engines]
        signals += [(duty, "") for duty in OtherDuties._fields]
        self._signals = {signal: threading.Event() for signal in signals}
        """That there is something to do, by duty and engine (empty: of the installation)."""

    def run(self) -> None:
        """Sweep and do the housekeeping until :meth:`stop`."""
        context = self._context
        house, deliverer, sweeps = Housekeeping(context), Deliverer(context), Sweeps(context)
        for engine in context.engines.values():
            self._start(self._repeat, _CHECK_EVERY, partial(house.check, engine))
        for name in context.engines:
            self._start(self._when, self._signals["admit", name], partial(self.admit_due, name))
            self._start(self._when, self._signals["observe", name], partial(observe, context, name))
            self._start(self._when, self._signals["watch", name], partial(self.watch, name))
        self._start(self._when, self._signals["endings", ""], self._watch_endings)
        self._start(self._when, self._signals["deliveries", ""], deliverer.run_due)
        self._start(self._when, self._signals["sweeps", ""], sweeps.run_due)
        self._start(self._when, self._signals["predecessors", ""], partial(follow, context))
        self._start(self._when, self._signals["schedules", ""], Schedules(context).run_due)
        self._start(self._search)
        self._start(self._repeat, _TIDY_EVERY, house.tidy)
        self._start(self._repeat, _RETENTION_EVERY, Retention(context).remove_due)
        self._start(self._repeat, _ARCHIVE_EVERY, Archiver(context).archive_due)
        if EndedKeys.wanted(context.settings):
            self._start(self._repeat, _KEYS_EVERY, EndedKeys(context.database, context.settings).end_due)
        if context.settings.audit.export:
            self._start(self._repeat, _EXPORT_EVERY, AuditExporter(context).export_due)
        self._guarded(partial(wake_strangers, self._context))
        while not self._stopping.is_set():
            self._stopping.wait(self._guarded(self.sweep) or self._interval())
        self._pool.shutdown(wait=True, cancel_futures=True)
        deliverer.settle(_LAST_TRIES)

    def stop(self) -> None:
        """Let :meth:`run` return after the steps that are under way."""
        self._stopping.set()
        for wanted in self._signals.values():
            wanted.set()

    def sweep(self) -> float:
        """Step all due jobs; returns the seconds until the next sweep: earlier than usual if a job is due earlier."""
        due, soonest = self._find()
        random.shuffle(due)  # several sweepers find the same jobs, and would meet at each of them
        self._submit(due)
        if len(due) == _BATCH:
            return _SHORTEST
        return max(_SHORTEST, min(self._interval(), soonest))

    def admit_due(self, engine: str) -> None:
        """Make a pass over an engine's queue if something asks for it."""
        if due(self._context, engine):
            admit(self._context, engine)

    def watch(self, engine: str) -> None:
        """Step the jobs about which an engine has news."""
        self._submit(watch(self._context, engine))

    def watch_endings(self) -> bool:
        """Step the jobs whose runs have just ended. Returns whether runs are ending.

        One observation of an engine serves all runs that are ending. Room that comes free therefore goes to the next
        job at once, and no step has to wait.
        """
        ending = (
            select(Job.id, Job.engine, Attempt.run_name)
            .join(Attempt, and_(Attempt.job_id == Job.id, Attempt.ended_at.is_(None)))
            .where(Attempt.outcome.is_not(None), Job.lease_until.is_(None))
        )
        with self._context.database.transaction() as session:
            found = session.execute(ending).all()
        gone: dict[str, str] = {}
        for name in {engine for _, engine, _ in found} & self._context.engines.keys():
            try:
                seen = self._context.engines[name].runs(_ENDINGS)
            except EngineUnreachable:
                continue
            runs = [(run, job_id, seen.get(run)) for job_id, engine, run in found if engine == name]
            gone |= {
                run: job_id
                for run, job_id, seen_run in runs
                if seen_run is None or (seen_run.learners and seen_run.gone)
            }
        # Only once: if the step finds something else, it decides itself when the next step is due.
        news = [job_id for run, job_id in gone.items() if run not in self._gone]
        self._gone = frozenset(gone)
        if news:
            with self._context.database.transaction() as session:
                make_due(session, news)
            self._submit(news)
        return bool(found)

    def _submit(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            with self._lock:
                if job_id in self._under_way:
                    continue
                self._under_way.add(job_id)
            self._pool.submit(self._step, job_id)

    def _find(self) -> tuple[list[str], float]:
        """The due jobs that are free, and the seconds until the next one is due."""
        free = or_(Job.lease_until.is_(None), Job.lease_until < func.now())
        due = select(Job.id).where(Job.next_step_at <= func.now(), free).order_by(Job.next_step_at).limit(_BATCH)
        left = func.extract("epoch", func.min(Job.next_step_at) - func.now())
        with self._context.database.transaction() as session:
            # It takes no locks: the claim decides which worker steps the job. Nor does it skip locked rows: the
            # transaction that holds the lock may have just made the job due.
            found = list(session.scalars(due))
            soonest = session.execute(select(left).where(Job.next_step_at > func.now())).scalar_one()
        return found, float("inf") if soonest is None else float(soonest)

    def _step(self, job_id: str) -> None:
        try:
            self._guarded(lambda: step(self._context, job_id))
        finally:
            with self._lock:
                self._under_way.discard(job_id)

    def _interval(self) -> float:
        return self._context.settings.timings.sweep * random.uniform(0.7, 1.3)  # noqa: S311 - spreads workers, hides nothing

    def _repeat(self, seconds: float, task: Callable[[], object]) -> None:
        while not self._stopping.is_set():
            self._guarded(task)
            self._stopping.wait(seconds * random.uniform(0.7, 1.3))  # noqa: S311

    def _when(self, wanted: threading.Event, task: Callable[[], object]) -> None:
        """Run ``task`` when it is wanted."""
        while wanted.wait() and not self._stopping.is_set():
            wanted.clear()
            self._guarded(task)

    def _watch_endings(self) -> None:
        while self.watch_endings() and not self._stopping.wait(_ENDINGS):
            pass

    def _search(self) -> None:
        """Search for something to do: often while jobs wait or end, otherwise after a wake-up, or when an engine is to
        be watched."""
        wakeups = WakeUps(self._context.settings.redis_url.get_secret_value())
        for other in itertools.cycle((True, False)):  # the other duties may wait twice as long
            if self._stopping.is_set():
                break
            rest = min(_REST, self._guarded(self._find_queue_duties))
            if other or self._at_rest:
                self._guarded(self._find_other_duties)
            self._stopping.wait(_SEARCH_EVERY * random.uniform(0.7, 1.3))  # noqa: S311
            if self._at_rest:
                wakeups.wait(rest)
            else:
                wakeups.close()
        wakeups.close()

    def _find_queue_duties(self) -> float:
        """Returns the seconds until an engine is to be watched."""
        found, soonest = find_queue_duties(self._context.database, self._context.engines)
        for name, duties in found.items():
            self._signal(duties._asdict(), name)
        return soonest

    def _find_other_duties(self) -> None:
        self._at_rest = False  # also if the search fails
        duties, is_busy = find_other_duties(self._context.database)
        self._signal(duties._asdict(), "")
        self._at_rest = not is_busy

    def _signal(self, duties: Mapping[str, bool], engine: str) -> None:
        for duty, wanted in duties.items():
            if wanted:
                self._signals[duty, engine].set()

    @staticmethod
    def _start(target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _guarded(self, task: Callable[[], float | object | None]) -> float:
        """Run ``task``; trouble is logged, and never ends the sweeper."""
        try:
            answer = task()
            return answer if isinstance(answer, float) else 0.0
        except DBAPIError as error:
            log.warning("the database is in trouble", error=str(error.orig).strip().partition("\n")[0])
        except StoreError as error:
            log.warning("the object store is in trouble", error=str(error))
        except Exception:
            log.exception("unexpected trouble")
        return 0.0


def main(parent: int) -> int:
    """Run a sweeper for the worker that started this process, until that ends; returns the exit code."""
    name_process(NAME)
    die_with_parent(parent, signal.SIGTERM)
    collect_again()
    few_arenas()
    configure_logging()
    try:
        settings = read_settings()
        installation = wait_for_installation(settings)
        context = open_context(settings, installation, connections=_THREADS + 15)
    except BadSettings as error:
        print(f"weft sweeper: {error}", file=sys.stderr)
        return 2
    return_memory()
    sweeper = Sweeper(context)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sweeper.stop())
    threading.Thread(target=_watch, args=(parent, sweeper), daemon=True).start()
    log.info("sweeping", every=settings.timings.sweep)
    sweeper.run()
    context.close()
    return 0


def _watch(parent: int, sweeper: Sweeper) -> None:
    """Stop when the parent is gone, also where the kernel does not tell."""
    while os.getppid() == parent:
        time.sleep(1)
    sweeper.stop()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
