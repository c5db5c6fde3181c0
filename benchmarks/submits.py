"""Durable submits per second: 16 clients that submit a job with 20 KB of code, one after the other, to one API process,
to two, and to two that reach Postgres through PgBouncer, where it is installed.

Beside it the same without Weft: 16 threads that put an object of the same size with boto3 and then insert the same rows
in one transaction. Postgres waits for the disk, as in use. All take turns, each in a process of its own.
``WEFT_BENCH_SECONDS`` (10) is how long each measurement takes, ``WEFT_BENCH_ROUNDS`` (3) how many there are.
"""

from __future__ import annotations

import http.client
import io
import json
import multiprocessing
import os
import secrets
import statistics
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.types.json import Jsonb
from pydantic import SecretStr
from tests.pooler import Pooler
from tests.pooler import program as pgbouncer

from benchmarks.logs.service import ApiProcess, Service
from benchmarks.queue.workers import postgres_pid, used
from benchmarks.table import show
from weft_core.objects import make_client

CLIENTS = 16
CODE = 20_000
"""Bytes."""
GOAL = 0.6
GOAL_P99 = 0.150
"""Seconds."""
SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "10"))
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "3"))
_WARM_UP = 2.0
"""Seconds that don't count: the first calls open connections and fill caches."""
_MANIFEST = "name: hello\nframework: {name: python, command: python train.py}\n"


_RAW = "INSERTs and PUT"
_POOLED = 10
"""PgBouncer's connections to Postgres."""


@dataclass
class Subject:
    """The API processes, and what is behind them."""

    urls: list[str]
    tokens: list[str]
    database: str
    s3: dict[str, Any]
    bucket: str
    project_id: str
    user_id: str


def measure(folder: Path) -> None:
    with ExitStack() as stack:
        service = Service(folder, apis=2)
        stack.callback(service.stop)
        subject = subject_of(service)
        ways: dict[str, tuple[Callable[[Subject], dict[str, Any]], Subject]] = {
            _RAW: (_raw, subject),
            "POST /api/v1/jobs": (_weft, replace(subject, urls=subject.urls[:1])),
            "two API processes": (_weft, subject),
        }
        database = service.settings.database_url.get_secret_value().partition("?")[0].rpartition("/")[2]
        pooler = _pooler(service)
        if pooler is not None:
            stack.callback(pooler.stop)
            apis = stack.enter_context(_behind(pooler, database, service, folder))
            ways["two, with PgBouncer"] = (_weft, replace(subject, urls=[api.url for api in apis]))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        times: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        postgres = postgres_pid(service.servers)
        for _ in range(ROUNDS):
            for name, (way, at) in ways.items():
                before = used([], postgres)
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    found = pool.apply(way, (at,))
                costs[name].append((used([], postgres) - before) / found["calls"])
                rates[name].append(found["rate"])
                times[name] += found["times"]
        if pooler is not None:
            clients, servers = pooler.count("clients", database), pooler.count("servers", database)
            print(f"PgBouncer: {clients} connections of the APIs on {servers} to Postgres")
    raw = statistics.median(rates[_RAW])
    rows = []
    for name in ways:
        cuts = statistics.quantiles(times[name], n=100)
        rate = statistics.median(rates[name])
        rows.append(
            [name, f"{rate:.0f}", f"{rate / raw:.2f}", f"{1000 * cuts[49]:.0f}", f"{1000 * cuts[98]:.0f}"]
            + [f"{1000 * statistics.median(costs[name]):.1f}"]
            + ([f"≥ {GOAL:g}; p99 < {GOAL_P99 * 1000:.0f} ms"] if name != _RAW else [""])
        )
    show(
        f"Durable submits: {CLIENTS} clients, {CODE / 1000:.0f} KB of code, {ROUNDS} rounds of {SECONDS:g} s",
        ["what", "submits/s", "ratio", "p50, ms", "p99, ms", "Postgres, ms each", "goal"],
        rows,
    )


def _pooler(service: Service) -> Pooler | None:
    """PgBouncer in front of the service's Postgres, where it is installed."""
    if pgbouncer() is None:
        return None
    pooler = Pooler(service.servers.postgres, service.servers.folder / "pooler", connections=_POOLED)
    pooler.start()
    return pooler


@contextmanager
def _behind(pooler: Pooler, database: str, service: Service, folder: Path) -> Iterator[list[ApiProcess]]:
    """Two more API processes, which reach the same database through it."""
    url = SecretStr(pooler.url_of(database))
    settings = service.settings.model_copy(update={"database_url": url})
    apis = [ApiProcess(settings, folder / f"pooled-{number}.log") for number in range(2)]
    try:
        for api in apis:
            api.start()
        for api in apis:
            api.wait()
        yield apis
    finally:
        for api in apis:
            api.kill()


def subject_of(service: Service) -> Subject:
    person, s3 = service.person, service.settings.s3
    return Subject(
        [api.url for api in service.apis],
        [service.remote.person(project_id=person.project_id).token for _ in range(CLIENTS)],
        service.settings.database_url.get_secret_value(),
        {
            "endpoint": s3.endpoint,
            "region": s3.region,
            "access_key": s3.access_key,
            "secret_key": s3.secret_key.get_secret_value(),
        },
        s3.bucket,
        person.project_id,
        person.user_id,
    )


def _run(make: Callable[[int], Callable[[], None]]) -> dict[str, Any]:
    """Let each client do it again and again; ``make`` returns what client ``n`` does once."""
    times: list[list[float]] = [[] for _ in range(CLIENTS)]
    calls = [0] * CLIENTS
    until = time.perf_counter() + _WARM_UP + SECONDS

    def client(number: int) -> None:
        once = make(number)
        while (begun := time.perf_counter()) < until:
            once()
            calls[number] += 1
            if begun >= until - SECONDS:
                times[number].append(time.perf_counter() - begun)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))  # raises what a client has raised
    together = [value for some in times for value in some]
    return {"rate": len(together) / SECONDS, "times": together, "calls": sum(calls)}


def _weft(subject: Subject) -> dict[str, Any]:
    def make(number: int) -> Callable[[], None]:
        target = urlsplit(subject.urls[number % len(subject.urls)])
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=120)

        def once() -> None:
            boundary = uuid.uuid4().hex
            headers = {
                "Authorization": f"Bearer {subject.tokens[number]}",
                "Content-Type": f"multipart/form-data; boundary={boundary}",
                "Idempotency-Key": uuid.uuid4().hex,
            }
            connection.request("POST", "/api/v1/jobs", _multipart(boundary, code()), headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{answer.status}: {body[:500]!r}")

        return once

    return _run(make)


def _multipart(boundary: str, bundle: bytes) -> bytes:
    part = f"--{boundary}\r\nContent-Disposition: form-data; name=".encode()
    manifest = part + b'"manifest"\r\n\r\n' + _MANIFEST.encode() + b"\r\n"
    file = part + b'"code"; filename="code.zip"\r\nContent-Type: application/zip\r\n\r\n' + bundle + b"\r\n"
    return manifest + file + f"--{boundary}--\r\n".encode()


def _raw(subject: Subject) -> dict[str, Any]:
    def make(number: int) -> Callable[[], None]:
        s3 = make_client(**subject.s3)
        connection = psycopg.connect(subject.database.replace("+psycopg", ""))

        def once() -> None:
            bundle = code()
            digest = secrets.token_hex(32)
            s3.put_object(Bucket=subject.bucket, Key=f"raw/{digest}.zip", Body=bundle)
            job_id = f"job-{secrets.token_hex(6)}"
            with connection.transaction():
                for statement, values in _inserts(subject, job_id, digest, len(bundle)):
                    connection.execute(statement, values)

        return once

    return _run(make)


def _inserts(subject: Subject, job_id: str, digest: str, size: int) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a submit: the request's key, the code, the job, its log's cursor, its event, the audit record."""
    values = {
        "project": subject.project_id,
        "user": subject.user_id,
        "job": job_id,
        "sha": digest,
        "size": size,
        "manifest": Jsonb(_CANONICAL),
    }
    statements = [
        "insert into idempotency_keys (project_id, key, route, body_sha256, resource_id) "
        "values (%(project)s, %(sha)s, 'POST /jobs', %(sha)s, %(job)s) on conflict do nothing",
        "insert into code_bundles (project_id, sha256, size, files) values (%(project)s, %(sha)s, %(size)s, 2) "
        "on conflict do nothing",
        "insert into jobs (id, project_id, user_id, name, manifest, code_sha256, engine, priority, learners, retries) "
        "values (%(job)s, %(project)s, %(user)s, 'hello', %(manifest)s, %(sha)s, 'local', 50, 1, 3)",
        "insert into log_cursors (job_id, project_id) values (%(job)s, %(project)s)",
        "insert into events (project_id, job_id, kind, state, message, user_id) "
        "values (%(project)s, %(job)s, 'submitted', 'QUEUED', 'submitted to engine local', %(user)s)",
        "insert into audit (actor, user_id, address, action, object_kind, object_id, project_id, status, request_id) "
        "values ('token', %(user)s, '127.0.0.1', 'jobs.submit', 'job', %(job)s, %(project)s, 201, 'raw')",
    ]
    return [(statement, values) for statement in statements]


_CANONICAL = json.loads('{"name": "hello", "framework": {"name": "python", "command": "python train.py"}}') | {
    "padding": "x" * 900  # a canonical manifest has about as many bytes
}


def code() -> bytes:
    """A new bundle of the size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("train.py", "print('hello')\n")
        archive.writestr("weights.bin", secrets.token_bytes(CODE - 300))
    return buffer.getvalue()
