"""Metrics by MLflow's protocol: batches of 10 values from 20 clients, for Weft and for MLflow's own server.

Both servers share one Postgres, which waits for the disk, as in use, and take turns. MLflow's has its default of four
processes, Weft's is one process. ``WEFT_BENCH_SECONDS`` (10) is how long each measurement takes, ``WEFT_BENCH_ROUNDS``
(3) how many there are.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from mlflow import MlflowClient
from mlflow.entities import Metric
from tests.mlflow_server import mlflow_server

from benchmarks.logs.service import Service
from benchmarks.table import show

CLIENTS = 20
VALUES = 10
GOAL = 5.0
SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "10"))
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "3"))
_WARM_UP = 2.0
"""Seconds that don't count: the first calls open connections and fill caches."""
_NOW = 1_769_847_309_000
_LOG_BATCH = "/api/2.0/mlflow/runs/log-batch"


@dataclass
class Target:
    """A server, and what each client needs for it: its run and its token."""

    url: str
    clients: list[tuple[str, str]]
    step: int = 0
    """The next one that nobody has logged."""
    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


def measure(folder: Path) -> None:
    service = Service(folder, apis=1)
    try:
        with service.servers.postgres.connect() as connection:
            connection.execute("create database mlflow")
        with mlflow_server(folder, service.servers.postgres.url_of("mlflow")) as url:
            _measure(service, url)
    finally:
        service.stop()


def _measure(service: Service, url: str) -> None:
    weft, token = service.apis[0].url, service.person.token
    attempt = service.attempt(CLIENTS)
    learners = [(attempt.job_id, agent.start()["mlflow"]["token"]) for agent in attempt.agents]
    raw, real = (
        {
            "MLflow": Target(url, _runs(url, "")),
            "Weft": Target(weft, _runs(weft, token)),
            "Weft, learners of a job": Target(weft, learners, first),
        }
        for first in (0, 1 << 20)
    )
    for _ in range(ROUNDS):
        for target in raw.values():
            _run(target, _send_raw)
    for _ in range(ROUNDS):
        for target in real.values():
            _run(target, _send_with_mlflow)
    rows = []
    for what, targets in ((f"{CLIENTS} clients, plain HTTP", raw), ("1 client, MLflow's own", real)):
        theirs = statistics.median(targets["MLflow"].rates)
        for name, target in targets.items():
            rate = statistics.median(target.rates)
            p50, p99 = (1000 * value for value in _quantiles(target.times))
            ratio = "" if name == "MLflow" else f"{rate / theirs:.1f}"
            rows.append([what, name, f"{rate:,.0f}", f"{rate * VALUES:,.0f}", f"{p50:.1f}", f"{p99:.1f}", ratio])
    show(
        f"MLflow's protocol: batches of {VALUES} metrics; goal: {GOAL:g} times MLflow's rate with {CLIENTS} clients",
        ("clients", "server", "batches/s", "values/s", "p50, ms", "p99, ms", "ratio"),
        rows,
    )


def _runs(url: str, token: str) -> list[tuple[str, str]]:
    """A run for each client."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        body = {"experiment_id": "0", "start_time": _NOW}
        made = [client.post("/api/2.0/mlflow/runs/create", json=body).raise_for_status() for _ in range(CLIENTS)]
    return [(answer.json()["run"]["info"]["run_id"], token) for answer in made]


def _quantiles(times: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def _run(target: Target, send: Callable[[Target, float], dict[str, Any]]) -> None:
    """Measure once, with the clients in a process of their own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(send, (target, SECONDS))
    target.step = found["step"]
    target.rates.append(found["rate"])
    target.times += found["times"]


def _send_raw(target: Target, seconds: float) -> dict[str, Any]:
    """One batch after the other from each client, each over a connection that it keeps."""
    place = urlsplit(target.url)
    assert place.hostname is not None
    times: list[list[float]] = [[] for _ in target.clients]
    steps = [target.step] * len(target.clients)
    until = time.perf_counter() + _WARM_UP + seconds

    def client(number: int) -> None:
        run_id, token = target.clients[number]
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
        while time.perf_counter() < until:
            body = json.dumps({"run_id": run_id, "metrics": _batch(steps[number])})
            sent = time.perf_counter()
            connection.request("POST", _LOG_BATCH, body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{target.url} answered {answer.status}")
            steps[number] += 1
            if sent >= until - seconds:
                times[number].append(time.perf_counter() - sent)

    with ThreadPoolExecutor(len(target.clients)) as pool:
        list(pool.map(client, range(len(target.clients))))  # raises what a client has raised
    together = [value for some in times for value in some]
    return {"step": max(steps), "rate": len(together) / seconds, "times": together}


def _send_with_mlflow(target: Target, seconds: float) -> dict[str, Any]:
    """One client of MLflow, one batch after the other."""
    run_id, token = target.clients[0]
    if token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = token
    client = MlflowClient(tracking_uri=target.url)
    step, times = target.step, []
    until = time.perf_counter() + _WARM_UP + seconds
    while (sent := time.perf_counter()) < until:
        client.log_batch(run_id, [Metric(of["key"], of["value"], of["timestamp"], of["step"]) for of in _batch(step)])
        step += 1
        if sent >= until - seconds:
            times.append(time.perf_counter() - sent)
    return {"step": step, "rate": len(times) / seconds, "times": times}


def _batch(step: int) -> list[dict[str, Any]]:
    return [{"key": f"m{n}", "value": step + n / 10, "timestamp": _NOW + step, "step": step} for n in range(VALUES)]
