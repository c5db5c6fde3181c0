"""Many learners of one job: how long their calls take, and how soon the API answers others meanwhile, in one run.

A real API process with Postgres, Redis and S3. Each learner has a line and a metric a second and a heartbeat every
three seconds. They send them in two ways, in turns: apart, each over a connection of its own, one call at a time, as
agents of earlier releases do; and together, in one report a second, as the agent does. The learners are a process of
their own, with a lower priority. ``WEFT_BENCH_LEARNERS`` (100,1000) is how many there are, ``WEFT_BENCH_SECONDS`` (20)
how long each measurement takes.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import time
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.logs.service import Service
from benchmarks.table import show

LEARNERS = [int(number) for number in os.environ.get("WEFT_BENCH_LEARNERS", "100,1000").split(",")]
SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", "20"))
GOAL, GOAL_OF_OTHERS = 1.0, 0.1
_WAYS = {"apart": {"logs": 1.0, "metrics": 1.0, "heartbeat": 3.0}, "together": {"report": 1.0}}
"""The calls of a learner, and the seconds between two of each."""
_BEAT_EVERY = 3
"""Reports."""
_WARM = 3.0
_OTHERS_EVERY = 0.05
_AT_ONCE = 16
"""Learners that ask for their start grants at the same time."""


def measure(folder: Path) -> None:
    rows = []
    service = Service(folder, apis=1)
    try:
        alone = _others(service, 3.0)
        rows.append(["0", "", "", _ms(alone, 0.99), "", "", ""])
        for count in LEARNERS:
            p99s = []
            for way, verbs in _WAYS.items():
                times, others, share, cores = _of_a_gang(service, count, verbs)
                p99s.append(_quantile(times, 0.99))
                rows.append(
                    [
                        f"{count:,}, {way}",
                        _ms(times, 0.5),
                        _ms(times, 0.99),
                        _ms(others, 0.99),
                        f"{share:.0%}",
                        f"{cores:.2f}",
                        f"{p99s[-1] / p99s[0]:.2f}" if len(p99s) > 1 else "1",
                    ]
                )
    finally:
        service.stop()
    show(
        f"Learners of one job, a line and a metric a second and a heartbeat every 3 s of each, {SECONDS:g} s",
        [
            "learners, who send",
            "their calls: median",
            f"p99, goal < {GOAL * 1000:.0f} ms",
            f"others: p99, goal < {GOAL_OF_OTHERS * 1000:.0f} ms",
            "of due calls",
            "API's processor, cores",
            "ratio",
        ],
        rows,
    )


def _of_a_gang(service: Service, count: int, verbs: dict[str, float]) -> tuple[list[float], list[float], float, float]:
    """How long the learners' calls take, and another user's; the share of the due calls that were
    answered; the cores that the API used."""
    attempt = service.attempt(count)
    here, there = multiprocessing.get_context("spawn").Pipe()
    gang = multiprocessing.get_context("spawn").Process(
        target=_learn, args=(service.apis[0].url, attempt.token, count, verbs, there), daemon=True
    )
    gang.start()
    there.close()
    here.recv()  # all are started
    here.send("go")
    _others(service, _WARM)
    api = psutil.Process(service.apis[0].pid)
    before, begun = api.cpu_times(), time.monotonic()
    others = _others(service, SECONDS)
    after, seconds = api.cpu_times(), time.monotonic() - begun
    here.send("enough")
    told, due = here.recv()
    gang.join()
    service.end(attempt)
    cores = (after.user + after.system - before.user - before.system) / seconds
    times = [seconds for seconds, _ in told]
    return times, others, sum(in_time for _, in_time in told) / due, cores


def _others(service: Service, seconds: float) -> list[float]:
    """How long another user's calls take."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        service.person.http.get("/api/v1/me").raise_for_status()
        times.append(time.perf_counter() - begun)
        time.sleep(_OTHERS_EVERY)
    return times


def _ms(times: list[float], share: float) -> str:
    return f"{_quantile(times, share) * 1000:.0f} ms" if times else "none"


def _quantile(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


# --- the learners' process --------------------------------------------------------------------------------------


class _Connection:
    """One call at a time."""

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url)
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, verb: str, body: str) -> None:
        try:
            await self._post(verb, body)
        except (OSError, asyncio.IncompleteReadError):  # the server may close an idle connection at any time
            self._streams = None
            await self._post(verb, body)

    async def _post(self, verb: str, body: str) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._place.hostname, self._place.port)
        reader, writer = self._streams
        head = (
            f"POST /api/v1/learner/{verb} HTTP/1.1\r\nHost: {self._place.netloc}\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write((head + body).encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer.split(b" ", 2)[1])
        _, _, length = answer.partition(b"content-length: ")
        await reader.readexactly(int(length.split(b"\r\n", 1)[0] or 0) if length else 0)
        if status >= 300:
            raise RuntimeError(f"{verb} was answered with {status}")


def _learn(url: str, token: str, count: int, verbs: dict[str, float], told: Connection) -> None:
    os.nice(5)
    asyncio.run(_learn_all(url, token, count, verbs, told))


def _content(verb: str, sequence: int) -> dict[str, object]:
    now = int(time.time() * 1000)
    if verb == "logs":
        return {"sequence": sequence, "lines": [{"t": now, "s": f"step {sequence}: loss 0.4321"}]}
    if verb == "metrics":
        record = {"t": now, "kind": "user", "group": "", "etimes": {"iteration": sequence}}
        return {"sequence": sequence, "records": [record | {"values": {"loss": 0.4321}}]}
    if verb == "heartbeat":
        return {"system": {"cpu_percent": 90.0}, "idle_seconds": 0.0, "wrote": True}
    parts = ["logs", "metrics"] + ([] if sequence % _BEAT_EVERY else ["heartbeat"])
    return {part: _content(part, sequence) for part in parts}


async def _learn_all(url: str, token: str, count: int, verbs: dict[str, float], told: Connection) -> None:
    instances = [str(uuid.uuid4()) for _ in range(count)]
    room = asyncio.Semaphore(_AT_ONCE)
    times: list[tuple[float, bool]] = []
    """How long each call took, and whether it was answered while this was measured."""
    begun = time.monotonic()
    enough = asyncio.Event()

    async def start(rank: int) -> None:
        async with room:
            body = {"rank": rank, "instance": instances[rank], "hostname": "bench"}
            await _Connection(url, token).post("start", json.dumps(body))

    async def send(rank: int, verb: str) -> None:
        connection = _Connection(url, token)
        sequence = 0
        due = begun + random.random() * verbs[verb]  # gangs do not write in step
        while not enough.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            body = {"rank": rank, "instance": instances[rank], **_content(verb, sequence)}
            sent = time.monotonic()
            await connection.post(verb, json.dumps(body))
            answered = time.monotonic()
            if answered > begun + _WARM:
                times.append((answered - sent, not enough.is_set()))
            sequence += 1
            due = max(due + verbs[verb], time.monotonic())

    await asyncio.gather(*(start(rank) for rank in range(count)))
    told.send("ready")
    await asyncio.to_thread(told.recv)
    begun = time.monotonic()
    tasks = [asyncio.create_task(send(rank, verb)) for rank in range(count) for verb in verbs]
    await asyncio.to_thread(told.recv)
    enough.set()
    due = (time.monotonic() - begun - _WARM) * count * sum(1 / every for every in verbs.values())
    await asyncio.gather(*tasks)
    told.send((times, due))
