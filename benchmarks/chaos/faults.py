"""The faults: each is done, lasts, and is undone."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Semaphore, Thread

import psutil
import redis

from benchmarks.chaos.gate import Way
from benchmarks.chaos.installation import LEASE, SILENCE, Installation, Process
from weft_embedded.part import Part

Fault = tuple[int, str, Callable[[random.Random], None]]
"""How often it is done, compared with others; its name; what does it and undoes it."""


@dataclass
class Faults:
    """What is done to an installation.

    Args:
        away: seconds for which Redis may be gone, at most.
    """

    installation: Installation
    seed: int
    away: float
    counts: Counter[str] = field(default_factory=Counter)
    ended: list[tuple[str, float]] = field(default_factory=list)
    """The name of each fault, and when (seconds since the epoch) it was undone."""
    disturbed: set[str] = field(default_factory=set)
    """Jobs of which a process was killed, so that they may have to run again."""
    problems: list[str] = field(default_factory=list)

    def go_on(self, over: Event, pause: float) -> None:
        """One fault, and then another one, until ``over``: of a server and of a process at the same time."""
        idle = Semaphore(0)
        for kind, faults in {"servers": self._of_servers(), "processes": self._of_processes()}.items():
            Thread(target=self._repeat, args=(over, pause, kind, faults, idle), daemon=True).start()
        for _ in range(2):
            idle.acquire()

    def _repeat(self, over: Event, pause: float, kind: str, faults: list[Fault], idle: Semaphore) -> None:
        chance = random.Random(f"{self.seed} {kind}")
        while not over.wait(chance.uniform(0.5, 1.5) * pause):
            _, name, do = chance.choices(faults, [weight for weight, _, _ in faults])[0]
            self.counts[name] += 1
            try:
                do(chance)
            except Exception as error:  # named in the report: a fault that can't be done shows nothing
                self.problems.append(f"{name}: {error!r}")
            self.ended.append((name, time.time()))
        idle.release()
        Event().wait()  # for ever: the servers that this thread has started end with it

    # --- servers ---

    def _of_servers(self) -> list[Fault]:
        return [
            (2, "Postgres killed", self._kill_postgres),
            (1, "Redis flushed", self._flush_redis),
            (1, "Redis gone", self._take_redis_away),
            (1, "S3 down", partial(self._spoil_s3, "closed")),
            (1, "S3 slow", partial(self._spoil_s3, "slow")),
            (1, "S3 answers 500", partial(self._spoil_s3, "broken")),
        ]

    def _kill_postgres(self, _: random.Random) -> None:
        server = self.installation.servers.postgres
        _kill(server)
        server.start()

    def _flush_redis(self, _: random.Random) -> None:
        with redis.Redis.from_url(self.installation.servers.redis.url) as client:
            client.flushall()

    def _take_redis_away(self, chance: random.Random) -> None:
        server = self.installation.servers.redis
        _kill(server)
        time.sleep(chance.uniform(0.2, 1) * self.away)
        server.start()

    def _spoil_s3(self, way: Way, chance: random.Random) -> None:
        self.installation.s3.go(way)
        time.sleep(chance.uniform(1, 8))
        self.installation.s3.go("open")

    # --- processes ---

    def _of_processes(self) -> list[Fault]:
        apis, workers = self.installation.apis, self.installation.workers
        return [
            (2, "API killed", lambda chance: _restart([chance.choice(apis)], chance)),
            (1, "API frozen", lambda chance: _freeze(chance.choice(apis), chance)),
            (2, "worker killed", lambda chance: _restart([chance.choice(workers)], chance)),
            (2, "worker frozen", lambda chance: _freeze(chance.choice(workers), chance)),
            (1, "all workers killed", partial(_restart, workers)),
            (3, "learner killed", self._kill_learner),
            (2, "learner frozen", self._freeze_learner),
        ]

    def _kill_learner(self, chance: random.Random) -> None:
        with suppress(psutil.NoSuchProcess):
            if victim := self._learner(chance):
                self.disturbed.add(_job(victim))
                victim.kill()

    def _freeze_learner(self, chance: random.Random) -> None:
        with suppress(psutil.NoSuchProcess):
            if victim := self._learner(chance):
                victim.suspend()
                time.sleep(chance.uniform(1, 1.5) * SILENCE)
                victim.resume()

    def _learner(self, chance: random.Random) -> psutil.Process | None:
        known = []
        for process in self.installation.learners():
            with suppress(psutil.Error):
                if _job(process):
                    known.append(process)
        return chance.choice(known) if known else None


def _kill(server: Part) -> None:
    """kill -9."""
    assert server.process is not None
    server.process.kill()
    server.process.wait()


def _restart(processes: Sequence[Process], chance: random.Random) -> None:
    for process in processes:
        process.kill()
    time.sleep(chance.uniform(0, 2))
    for process in processes:
        process.start()


def _freeze(process: Process, chance: random.Random) -> None:
    process.freeze()
    time.sleep(chance.uniform(1, 2) * LEASE)
    process.thaw()


def _job(learner: psutil.Process) -> str:
    """The id of its job, as its environment or its folder says."""
    found = re.search(r"job-[0-9a-z]{12}", " ".join([*learner.environ().values(), learner.cwd()]))
    return found[0] if found else ""
