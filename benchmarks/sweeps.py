"""How long a decision of a sweep's search takes as trials pile up, and the rows that it reads.

The rows of a sweep with 100 and with 10,000 trials, in a Postgres of its own. A decision is what a worker does for one
trial: it reads the rows, builds Optuna's study, and asks the sampler. For ``asha`` and ``hyperband``, it first looks
for a trial that goes on, and finds none. For ``pbt``, it ranks the 100 trials of the rung before. Seconds of the
processor, as the machine may be busy; the first decision of a process, which imports Optuna, does not count.
``WEFT_BENCH_ROUNDS`` (30) decisions each.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from sqlalchemy import event, insert
from sqlalchemy.orm import Session
from tests.servers import Servers

from benchmarks.table import show
from weft_core.manifest.sweep_models import Rungs, Sweep, SweepParameter
from weft_core.store.database import Database
from weft_core.store.models import Job, Project, SweepRow, Trial, User
from weft_core.sweeps.promoting import next_promotion
from weft_core.sweeps.rungs import bracket_of
from weft_core.sweeps.trials import decide, search_of

SIZES = (100, 10_000)
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "30"))
_POPULATION = 100
GOAL = 0.020
"""Seconds of the processor for a decision."""
_PARAMETERS = {
    "lr": SweepParameter(kind="log", low=1e-5, high=1e-1),
    "dropout": SweepParameter(kind="uniform", low=0.0, high=0.5),
    "layers": SweepParameter(kind="int", low=1, high=8),
    "width": SweepParameter(kind="int_log", low=16, high=1024),
}


def measure(folder: Path) -> None:
    """Print the table."""
    servers = Servers()
    try:
        with servers.database_url() as url:
            database = Database(url)
            searches = ("random", "grid", "tpe", "cmaes", "asha", "hyperband", "pbt")
            rows = [_measure(database, search, size) for search in searches for size in SIZES]
            database.close()
    finally:
        servers.stop()
    show("a decision of a sweep", ("search", "trials", "CPU ms", "rows read", f"goal {GOAL * 1e3:.0f} ms"), rows)


def _measure(database: Database, search: str, size: int) -> tuple[str, ...]:
    with database.transaction() as session:
        sweep_id = _fill(session, search, size)
        rows = _Rows(session)
    times = []
    for round_ in range(ROUNDS + 1):
        with database.transaction() as session:
            sweep = session.get_one(SweepRow, sweep_id)
            rows.read = 0
            begin = time.process_time()
            next_promotion(session, sweep, search_of(sweep))
            decide(session, sweep, size + round_, size)
            took = time.process_time() - begin
        if round_:
            times.append(took)
    rows.close()
    median = statistics.median(times)
    return search, f"{size:,}", f"{median * 1e3:.1f}", str(rows.read), "met" if median <= GOAL else "missed"


class _Rows:
    """Counts the rows that statements return."""

    def __init__(self, session: Session) -> None:
        self.read = 0
        self._bind = session.get_bind()
        event.listen(self._bind, "after_cursor_execute", self._executed)

    def _executed(self, _connection: Any, cursor: Any, *_: Any) -> None:
        self.read += cursor.rowcount

    def close(self) -> None:
        event.remove(self._bind, "after_cursor_execute", self._executed)


def _fill(session: Session, search: str, size: int) -> str:
    """A sweep whose trials have ended, all but four; with ``pbt`` all."""
    chance = random.Random(1)
    parameters = dict(_PARAMETERS)
    if search == "grid":
        parameters = {name: SweepParameter(kind="values", values=list(range(11))) for name in _PARAMETERS}
    rungs, population = None, None
    if search in ("asha", "hyperband"):
        rungs = Rungs(parameter="epochs", max=81)
    elif search == "pbt":
        rungs, population = Rungs(parameter="epochs", max=20_000 // _POPULATION, every=1), _POPULATION
    sweep = Sweep(
        parameters=parameters,
        metric="loss",
        goal="min",
        trials=20_000,
        search=search,
        rungs=rungs,
        population=population,
    )
    row_id = f"swp-{search}-{size}"
    session.merge(Project(id="prj-1", name="lab"))
    session.merge(User(id="usr-1", name="ada"))
    manifest = {
        "name": "x",
        "engine": "local",
        "resources": {"cpus": 1, "gpus": 0, "memory": 1},
        "framework": {"name": "python", "version": "3", "launcher": "none", "command": "true", "image": "x"},
        "sweep": sweep.model_dump(mode="json"),
    }
    session.add(SweepRow(id=row_id, project_id="prj-1", user_id="usr-1", name="x", manifest=manifest, asked=size))
    session.flush()
    if population:
        _fill_jobs(session, row_id, size)
    rows = []
    for number in range(size):
        done = number < size - 4 or population is not None
        value = chance.random() if done else None
        rows.append(
            {
                "sweep_id": row_id,
                "number": number,
                "project_id": "prj-1",
                "parameters": {
                    "lr": 10 ** chance.uniform(-5, -1),
                    "dropout": chance.uniform(0, 0.5),
                    "layers": chance.randint(1, 8),
                    "width": chance.randint(16, 1024),
                },
                "runs": False,
                "state": "COMPLETED" if done else "RUNNING",
                "value": value,
                "job_id": _job(row_id, number) if population else None,
                "rung": bracket_of(sweep, number).first if rungs and not population else None,
                "results": [value] if rungs and not population and done else [],
                "seen": max(0, number - 4),
                "told": number + 1 if done else None,
                "memory": {},
            }
        )
    session.execute(insert(Trial), rows)
    return row_id


def _fill_jobs(session: Session, sweep_id: str, size: int) -> None:
    """The completed jobs of its trials, with whose checkpoints further trials can begin."""
    columns: dict[str, Any] = {
        "project_id": "prj-1",
        "user_id": "usr-1",
        "name": "x",
        "manifest": {},
        "engine": "local",
    }
    columns |= {"priority": 50, "learners": 1, "retries": 0, "state": "COMPLETED", "next_step_at": None}
    rows = [{"id": _job(sweep_id, number), **columns} for number in range(size)]
    session.execute(insert(Job), rows)


def _job(sweep_id: str, number: int) -> str:
    return f"job-{sweep_id}-{number}"
