"""Fills a database with waiting and open jobs, by SQL, before the measurement."""

from __future__ import annotations

import json

from sqlalchemy import text

from weft_core.store import jobs
from weft_core.store.database import Database
from weft_core.store.models import Job
from weft_core.store.scope import Scope

PROJECTS = 100
SLOTS = 20
"""Jobs that a node has room for."""
GIB = 1 << 30
_MANIFEST = {
    "name": "job",
    "resources": {"cpus": 1, "gpus": 0, "memory": GIB, "storage": None, "gpu_type": None, "extra": {}},
    "framework": {"name": "custom", "image": "python:3.11", "command": "python train.py --epochs 90 --batch 256"},
    "env": {f"VARIABLE_{number}": f"value {number}" for number in range(40)},
    "data_stores": [],
    "notify": [],
    "rules": [],
}
_JOBS = """
insert into jobs (id, project_id, user_id, name, manifest, engine, priority, learners, retries, state, attempt,
                  created_at, next_step_at)
select :kind || '-' || g, 'prj-' || g % :projects, 'usr-1', 'job',
    case when g % 10 = 0 then cast(:large as jsonb) else cast(:manifest as jsonb) end,
    :engine, 50, :learners, 0, :state, :attempt, now() - make_interval(secs => :jobs - g),
    now() + make_interval(secs => random() * 30)
from generate_series(1, :jobs) g
"""
_ATTEMPTS = """
insert into attempts (id, project_id, job_id, n, engine, run_name, resources, token_sha256, token_ciphertext,
                      launched_at)
select 'att-' || g, 'prj-' || g % :projects, 'open-' || g, 1, :engine, 'weft-open-' || g || '-1',
    jsonb_build_object('cpus', 1, 'gpus', 0, 'memory', :memory, 'gpu_type', null, 'extra', '{}'::jsonb,
                       'learners', cast(:learners as int), 'nodes', jsonb_build_array('node-' || g / :slots)),
    'token-' || g, '', now()
from generate_series(1, :jobs) g
"""
_LEARNERS = """
insert into learners (attempt_id, rank, project_id, phase, instance, node, launched_at, started_at, heartbeat_at)
select 'att-' || g, rank, 'prj-' || g % :projects, 'PROCESSING', 'agent', 'node-' || g / :slots, now(), now(), now()
from generate_series(1, :jobs) g, generate_series(0, :learners - 1) rank
"""


def submit(database: Database, number: int) -> str:
    """A job of a project that may start it."""
    with database.transaction() as session:
        return jobs.submit(Scope(session, "prj-0"), new_job(number), []).id


def new_job(number: int) -> Job:
    """A job for :func:`weft_core.store.jobs.submit`."""
    fields = {"name": "job", "manifest": _MANIFEST, "engine": "local", "priority": 50, "learners": 1, "retries": 0}
    return Job(id=f"new-{number}", user_id="usr-1", **fields)


def fill(database: Database, waiting: int, opened: int, *, engine: str = "local", learners: int = 1) -> None:
    """Projects with quotas and shares, jobs that run, and jobs that wait. One waiting job in ten needs two CPUs."""
    large = {**_MANIFEST, "resources": {**_MANIFEST["resources"], "cpus": 2}}  # type: ignore[dict-item]
    gangs = {"projects": PROJECTS, "engine": engine, "learners": learners}
    same = gangs | {"manifest": json.dumps(_MANIFEST), "large": json.dumps(large)}
    with database.transaction() as session:
        session.execute(text("insert into users (id, name) values ('usr-1', 'ada')"))
        session.execute(
            text(
                """insert into projects (id, name, weight, quota, guaranteed)
                select 'prj-' || g, 'project-' || g, 1 + g % 3,
                    case when g % 2 = 0 then '{"cpus": 40}'::jsonb else '{}'::jsonb end,
                    case when g % 5 = 0 then '{"cpus": 2}'::jsonb else '{}'::jsonb end
                from generate_series(0, :projects - 1) g"""
            ),
            {"projects": PROJECTS},
        )
        for kind, jobs, state, attempt in (("open", opened, "PROCESSING", 1), ("wait", waiting, "QUEUED", 0)):
            session.execute(text(_JOBS), same | {"kind": kind, "jobs": jobs, "state": state, "attempt": attempt})
        some = gangs | {"jobs": opened, "slots": SLOTS}
        session.execute(text(_ATTEMPTS), some | {"memory": GIB})
        session.execute(text(_LEARNERS), some)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("analyze"))
