"""A project with any number of jobs, and others beside it, written by Postgres itself in seconds to minutes."""

from __future__ import annotations

import psycopg

USERS = 50
_OF_OTHERS = 100
"""Jobs in each of the other projects."""

# Most jobs have ended. The open ones are as many in each size, and lie anywhere in time.
_JOBS = """
insert into jobs (id, project_id, user_id, name, labels, manifest, engine, priority, learners, retries, state, attempt,
    created_at, state_since, started_at, ended_at, next_step_at)
select
    'job-' || substr(md5(%(project)s || ':' || n), 1, 12),
    %(project)s,
    'usr-' || case when n %% 5000 = 77 then 'rare' else (n * 7919 %% %(users)s)::text end,
    name,
    jsonb_build_object('team', (array['vision', 'speech', 'text'])[1 + n %% 3], 'run', (n / 20)::text)
        || case when n < %(jobs)s / 3 then '{"generation": "first"}' else '{}' end::jsonb,
    jsonb_build_object('name', name, 'description', description, 'framework',
        jsonb_build_object('name', 'pytorch', 'version', '2.9', 'image', 'weft/pytorch:2.9', 'launcher', 'torchrun',
            'command', 'python train.py --lr 0.1 --data ' || repeat(md5(n::text), 8)),
        'resources', jsonb_build_object('cpus', 1, 'gpus', 0, 'memory', 1073741824),
        'engine', 'local'),
    case when n %% 4000 = 99 then 'cluster' else 'local' end,
    50, 1, 0, state, 1,
    created_at, created_at, case when state not in ('QUEUED', 'PENDING') then created_at end,
    case when state in ('COMPLETED', 'FAILED', 'HALTED') then created_at + n * 7919 %% 10000 * interval '1 second' end,
    null
from (
    select n,
        (array['resnet50-imagenet', 'BERT-finetune', 'whisper-small', 'mnist', 'gpt-nano', 'unet'])[1 + n * 31 %% 6]
            || case when n %% 3 = 0 then '' else '-' || (n %% 1000) end as name,
        case when n %% 1999 = 7 then 'the Zebra study' else 'a baseline with the usual learning rate' end
            as description,
        case when n %% greatest(%(jobs)s / 20, 2) = 1 then
                (array['QUEUED', 'PENDING', 'PROCESSING', 'STORING'])[1 + n * 20 / %(jobs)s %% 4]
            when n %% 7 = 0 then 'FAILED' when n %% 101 = 0 then 'HALTED' else 'COMPLETED' end as state,
        now() - (%(jobs)s - n) * interval '40 seconds' as created_at
    from generate_series(1, %(jobs)s::bigint) n
) as made
"""
_BELOW = (
    """insert into job_texts (job_id, project_id, created_at, body)
    select id, project_id, created_at, lower(name || E'\\n' || id || E'\\n' || (manifest ->> 'description'))
    from jobs where project_id = %(project)s""",
    """insert into job_labels (job_id, project_id, key, value, created_at)
    select id, project_id, key, label, created_at from jobs, jsonb_each_text(labels) as each(key, label)
    where project_id = %(project)s""",
    """insert into attempts (id, project_id, job_id, n, engine, run_name, resources, token_sha256, token_ciphertext,
        created_at, ended_at, outcome, logs_due)
    select 'att' || substr(id, 4), project_id, id, 1, engine, 'weft-' || id || '-1',
        '{"cpus": 1, "gpus": 0, "memory": 1073741824, "learners": 1}', 'of ' || id, '', created_at, ended_at,
        case when ended_at is not null then 'SUCCEEDED' end, null
    from jobs where project_id = %(project)s and state != 'QUEUED'""",
    """insert into learners (attempt_id, rank, project_id, phase)
    select id, 0, project_id, 'EXITED' from attempts where project_id = %(project)s""",
    """insert into events (project_id, job_id, attempt, kind, state, message, created_at)
    select project_id, id, 1, 'state', state, 'so it is', created_at from jobs, generate_series(1, 3)
    where project_id = %(project)s""",
    "insert into log_cursors (job_id, project_id) select id, project_id from jobs where project_id = %(project)s",
    """insert into job_metrics (job_id, name, project_id, rank, last, min, max, step, time)
    select id, measure, project_id, 0, value, value - 0.1, value + 0.1, 100, 1769847309000
    from (select id, project_id, ('x' || substr(md5(id || measure), 1, 7))::bit(28)::int / 268435456.0 as value, measure
        from jobs, (values ('val/loss'), ('val/accuracy')) as metric(measure)
        where project_id = %(project)s and state = 'COMPLETED') as measured""",
    """insert into mlflow_runs (id, project_id, job_id, experiment_id, "user", status, start_time, params)
    select id, project_id, id, md5(name), 'ann', 'FINISHED', extract(epoch from created_at)::bigint * 1000,
        jsonb_build_object('lr', '["0.1", 1, 0]'::jsonb)
    from jobs where project_id = %(project)s and hashtext(id) %% 10 = 0""",
    """insert into audit (created_at, actor, user_id, user_name, address, action, object_kind, object_id, project_id,
        project_name, status, request_id)
    select created_at, 'token', user_id, user_id, '127.0.0.1',
        case when hashtext(id) %% 5000 = 0 then 'jobs.halt' else 'jobs.submit' end, 'job', id, project_id, project_id,
        case when hashtext(id) %% 997 = 0 then 403 else 201 end, 'req'
    from jobs where project_id = %(project)s order by created_at""",
)


def fill(connection: psycopg.Connection, project_id: str, jobs: int, others: int) -> None:
    """Write ``jobs`` jobs with what belongs to them into the project, and make other projects with a hundred each.

    No trigger runs, and so no foreign key is checked: the rows are consistent. Needs a superuser.
    """
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("set local synchronous_commit = off")
        cursor.execute("set local session_replication_role = replica")
        for user in (*map(str, range(USERS)), "rare"):
            cursor.execute("insert into users (id, name) values (%s, %s) on conflict do nothing", [f"usr-{user}"] * 2)
        filled = {project_id: jobs} | {f"prj-of-others-{n}": _OF_OTHERS for n in range(others)}
        for project, number in filled.items():
            cursor.execute("insert into projects (id, name) values (%s, %s) on conflict do nothing", [project, project])
            for statement in (_JOBS, *_BELOW):
                cursor.execute(statement, {"project": project, "jobs": number, "users": USERS})
        cursor.execute("analyze")
