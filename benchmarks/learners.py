"""Many learners of one job: how long their calls take, and how soon the API answers others meanwhile, in one run.

A real API process with Postgres, Redis and S3. Each learner has a line and a metric a second and a heartbeat every
three seconds. They send them in two ways, in turns: apart, each over a connection of its own, one call at a time, as
agents of earlier releases do; and together, in one report a second, as the agent does. If the API asks for a pause, the
next report comes later and brings the lines and metrics of all the seconds until then. Each then also has a heartbeat
whose answer the API holds back, as the agent does. The learners are a process of their own, with a lower priority.
``WEFT_BENCH_LEARNERS`` (100,1000) is how many there are, ``WEFT_BENCH_SECONDS`` (20) how long each measurement takes.
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
_BEAT_EVERY = 3.0
_WARM = 10.0
"""Seconds until the API has found out how long the pauses must be."""
_OTHERS_EVERY = 0.05
_AT_ONCE = 16
"""Learners that ask for their start grants at the same time."""


def measure(folder: Path) -> None:
    rows = []
    service = Service(folder, apis=1)
    try:
        alone = _others(service, 3.0)
        rows.append(["0", "", "", _ms(alone, 0.99), "", "", "", ""])
        for count in LEARNERS:
            p99s = []
            for way, verbs in _WAYS.items():
                times, others, share, cores, pause = _of_a_gang(service, count, verbs)
                p99s.append(_quantile(times, 0.99))
                rows.append(
                    [
                        f"{count:,}, {way}",
                        _ms(times, 0.5),
                        _ms(times, 0.99),
                        _ms(others, 0.99),
                        f"{share:.0%}",
                        f"{pause:.1f} s",
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
            "of due lines, metrics, beats",
            "longest pause",
            "API's processor, cores",
            "ratio",
        ],
        rows,
    )


def _of_a_gang(
    service: Service, count: int, verbs: dict[str, float]
) -> tuple[list[float], list[float], float, float, float]:
    """How long the learners' calls take, and another user's; the share of the due lines, metrics and heartbeats that
    were taken; the cores that the API used; the longest pause for which it asked, in seconds."""
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
    told, due, pause = here.recv()
    gang.join()
    service.end(attempt)
    cores = (after.user + after.system - before.user - before.system) / seconds
    times = [seconds for seconds, _ in told]
    return times, others, sum(items for _, items in told) / due, cores, pause


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

    async def post(self, verb: str, body: str) -> bytes:
        try:
            return await self._post(verb, body)
        except (OSError, asyncio.IncompleteReadError):  # the server may close an idle connection at any time
            self._streams = None
            return await self._post(verb, body)

    async def _post(self, verb: str, body: str) -> bytes:
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
        content = await reader.readexactly(int(length.split(b"\r\n", 1)[0] or 0) if length else 0)
        if status >= 300:
            raise RuntimeError(f"{verb} was answered with {status}: {content[:200]!r}")
        return content


def _learn(url: str, token: str, count: int, verbs: dict[str, float], told: Connection) -> None:
    os.nice(5)
    asyncio.run(_learn_all(url, token, count, verbs, told))


def _content(verb: str, sequence: int, steps: range, beats: bool) -> dict[str, object]:
    now = int(time.time() * 1000)
    if verb == "logs":
        return {"sequence": sequence, "lines": [{"t": now, "s": f"step {step}: loss 0.4321"} for step in steps]}
    if verb == "metrics":
        record = {"t": now, "kind": "user", "group": "", "values": {"loss": 0.4321}}
        return {"sequence": sequence, "records": [record | {"etimes": {"iteration": step}} for step in steps]}
    if verb == "heartbeat":
        return {"system": {"cpu_percent": 90.0}, "idle_seconds": 0.0, "wrote": True}
    parts = ["logs", "metrics"] + (["heartbeat"] if beats else [])
    return {part: _content(part, sequence, steps, beats) for part in parts}


async def _learn_all(url: str, token: str, count: int, verbs: dict[str, float], told: Connection) -> None:
    instances = [str(uuid.uuid4()) for _ in range(count)]
    room = asyncio.Semaphore(_AT_ONCE)
    times: list[tuple[float, int]] = []
    """How long each call took, and how many lines, metrics and heartbeats it brought while this was measured."""
    pauses = [0.0] * count
    longest = 0.0
    begun = time.monotonic()
    enough = asyncio.Event()

    async def start(rank: int) -> None:
        async with room:
            body = {"rank": rank, "instance": instances[rank], "hostname": "bench"}
            await _Connection(url, token).post("start", json.dumps(body))

    async def hold(rank: int) -> None:
        connection = _Connection(url, token)
        await asyncio.sleep(random.random() * _BEAT_EVERY)
        while True:
            body = {"rank": rank, "instance": instances[rank], **_content("heartbeat", 0, range(0), True)}
            wait = max(_BEAT_EVERY, 2 * pauses[rank])
            await connection.post(f"heartbeat?rank={rank}&wait={wait}", json.dumps(body))

    async def send(rank: int, verb: str) -> None:
        nonlocal longest
        connection = _Connection(url, token)
        sequence = step = 0
        began = due = begun + random.random() * verbs[verb]  # gangs do not write in step
        beat_at = float("-inf")
        while not enough.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            written = int((sent - began) / verbs[verb]) + 1 if verb == "report" else step + 1
            beats = sent >= beat_at + _BEAT_EVERY
            steps = range(step, written)
            body = {"rank": rank, "instance": instances[rank], **_content(verb, sequence, steps, beats)}
            answer = await connection.post(verb, json.dumps(body))
            answered = time.monotonic()
            pause = pauses[rank] = json.loads(answer)["pause"] if verb == "report" else 0.0
            if answered > begun + _WARM:
                items = 2 * len(steps) + beats if verb == "report" else 1
                times.append((answered - sent, 0 if enough.is_set() else items))
                longest = max(longest, pause)
            beat_at = sent if beats else beat_at
            sequence, step = sequence + 1, written
            due = max(due + verbs[verb], answered + pause)  # the agent counts from the answer, too

    await asyncio.gather(*(start(rank) for rank in range(count)))
    told.send("ready")
    await asyncio.to_thread(told.recv)
    begun = time.monotonic()
    tasks = [asyncio.create_task(send(rank, verb)) for rank in range(count) for verb in verbs]
    held = [asyncio.create_task(hold(rank)) for rank in range(count) if "report" in verbs]
    await asyncio.to_thread(told.recv)
    enough.set()
    seconds = time.monotonic() - begun - _WARM
    await asyncio.gather(*tasks)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    told.send((times, seconds * count * (2 + 1 / _BEAT_EVERY), longest))
