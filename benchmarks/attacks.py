"""The effect of attacks on another tenant: its `GET /jobs`, quiet and under each attack, in rounds.

A real API process with Postgres, Redis and S3. The attackers are a process of their own. An attacker does not run on
the machine of the servers, so this process has the last core for itself, and the servers and the tenant have the
others. On a machine with a single core, it has the lowest priority instead. An attack is compared with the quiet right
before and right after it, and the median of the rounds counts.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.logs.service import Service
from benchmarks.table import median, show, spread

SECONDS = float(os.environ.get("WEFT_BENCH_SECONDS", 15))
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", 3))
GOAL = 5
"""The p99 beside an attack, in quiet p99s."""
_EVERY = 0.02  # seconds between two requests of the tenant
_WARM = 2.0  # seconds that an attack has before it counts
_SIGN_INS, _HALVES, _NAMES, _FLOODERS, _STREAMS = 60, 200, 38_000, 50, 1000


@dataclass(frozen=True)
class Target:
    """What an attacker knows."""

    url: str
    token: str
    job: str
    attempt: str
    instance: str


def measure(folder: Path) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores - {max(cores)})  # the processes that this one starts inherit it
    try:
        _measure(folder, max(cores) if len(cores) > 1 else None)
    finally:
        os.sched_setaffinity(0, cores)


def _measure(folder: Path, core: int | None) -> None:
    """Measure all attacks. ``core`` is the attackers' core; None: they have none of their own."""
    service = Service(folder, apis=1)
    try:
        for _ in range(20):
            service.person.submit()
        attacker = service.remote.person()
        job = attacker.submit()["id"]
        attempt = service.remote.attempt(job)
        attempt.agents[0].start()
        target = Target(service.apis[0].url, attacker.token, job, attempt.token, attempt.agents[0].instance)
        _answers(service, _WARM)
        measured: dict[str, list[_Beside]] = defaultdict(list)
        for _ in range(ROUNDS):
            before = _answers(service, SECONDS / 2)
            for name in _chosen():
                during = _beside(service, target, name, core)
                after = _answers(service, SECONDS / 2)
                measured[name].append(_Beside(before + after, during))
                before = after
    finally:
        service.stop()
    rows = [
        [
            ATTACKS[name].title,
            *(_ms([_quantile(times, share) for times in kind]) for share in (0.5, 0.99) for kind in _kinds(rounds)),
            spread([_quantile(each.during) / _quantile(each.quiet) for each in rounds]),
            f"< {GOAL}",
        ]
        for name, rounds in measured.items()
    ]
    title = f"Another tenant's GET /jobs beside an attack: {ROUNDS} rounds of {SECONDS:g} s, median"
    columns = ["attack", "p50 quiet", "p50", "p99 quiet", "p99", "p99 to the quiet one", "goal"]
    show(title, columns, rows)


@dataclass(frozen=True)
class _Beside:
    """How long the tenant's requests took in one round, in seconds."""

    quiet: list[float]
    during: list[float]


def _kinds(rounds: Sequence[_Beside]) -> tuple[list[list[float]], list[list[float]]]:
    return [each.quiet for each in rounds], [each.during for each in rounds]


def _chosen() -> list[str]:
    """The attacks that WEFT_BENCH_ATTACKS names; all of them unless it is set."""
    named = os.environ.get("WEFT_BENCH_ATTACKS")
    return named.split(",") if named else list(ATTACKS)


def _beside(service: Service, target: Target, name: str, core: int | None) -> list[float]:
    """How long the tenant's requests take while the attack runs."""
    process = multiprocessing.get_context("spawn")
    begun, enough = process.Event(), process.Event()
    attack = process.Process(target=_attack, args=(name, target, core, begun, enough), daemon=True)
    attack.start()
    try:
        if not begun.wait(60):
            raise RuntimeError(f"the attack with {name} did not begin")
        _answers(service, _WARM)
        return _answers(service, SECONDS)
    finally:
        enough.set()
        attack.join(30)
        attack.kill()


def _answers(service: Service, seconds: float) -> list[float]:
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        service.person.http.get("/api/v1/jobs").raise_for_status()
        times.append(time.perf_counter() - begun)
        time.sleep(_EVERY)
    return times


def _quantile(times: list[float], share: float = 0.99) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


def _ms(seconds: list[float]) -> str:
    return f"{median(seconds) * 1000:.0f} ms"


# --- the attackers' process -------------------------------------------------------------------------------------


def _attack(name: str, target: Target, core: int | None, begun: Event, enough: Event) -> None:
    if core is None:
        os.nice(19)
    else:
        os.sched_setaffinity(0, {core})
    begun.set()
    asyncio.run(_until(enough, ATTACKS[name].run(target)))


async def _until(enough: Event, attack: Awaitable[None]) -> None:
    task = asyncio.ensure_future(attack)
    while not enough.is_set():
        await asyncio.sleep(0.1)
        if task.done():
            task.result()
    task.cancel()


async def _at_once(number: int, do: Callable[[], Awaitable[None]]) -> None:
    """``number`` of them all the time."""

    async def again() -> None:
        while True:
            try:
                await do()
            except (OSError, asyncio.IncompleteReadError):  # the server has closed the connection
                await asyncio.sleep(0.1)

    await asyncio.gather(*(again() for _ in range(number)))


async def _sign_ins(target: Target) -> None:
    body = json.dumps({"user": "nobody", "password": "wrong"}).encode()
    await _at_once(_SIGN_INS, lambda: _exchange(target, "POST", "/api/v1/login", body))


async def _halves(target: Target) -> None:
    async def send_half() -> None:
        reader, writer = await _connect(target)
        try:
            writer.write(_head(target, "POST", "/api/v1/login", 100_000, None) + b'{"user": "')
            await reader.read(1)  # until the server gives up
        finally:
            writer.close()

    await _at_once(_HALVES, send_half)


async def _names(target: Target) -> None:
    values = {f"metric-{number}": 1.0 for number in range(_NAMES)}
    record = {"t": 1_769_847_309_000, "kind": "user", "group": "", "values": values}
    sent = {"rank": 0, "instance": target.instance, "sequence": 0, "records": [record]}
    body = json.dumps(sent).encode()
    await _at_once(1, lambda: _exchange(target, "POST", "/api/v1/learner/metrics", body, target.attempt))


async def _flood(target: Target) -> None:
    async def ask_on() -> None:
        reader, writer = await _connect(target)
        try:
            while True:
                writer.write(_head(target, "GET", "/api/v1/jobs", 0, target.token))
                await _answer(reader)
        finally:
            writer.close()

    await _at_once(_FLOODERS, ask_on)


async def _streams(target: Target) -> None:
    async def follow() -> None:
        reader, writer = await _connect(target)
        try:
            writer.write(_head(target, "GET", f"/api/v1/jobs/{target.job}/logs/follow", 0, target.token))
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()

    await _at_once(_STREAMS, follow)


@dataclass(frozen=True)
class Attack:
    title: str
    run: Callable[[Target], Awaitable[None]]


ATTACKS = {
    "sign-ins": Attack(f"{_SIGN_INS} anonymous sign-ins at once", _sign_ins),
    "halves": Attack(f"{_HALVES} half-sent bodies", _halves),
    "names": Attack(f"{_NAMES:,} metric names in a call", _names),
    "flood": Attack("a flood of requests with one token", _flood),
    "streams": Attack(f"{_STREAMS:,} open streams of one token", _streams),
}


async def _connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(target.url)
    return await asyncio.open_connection(parts.hostname, parts.port)


def _head(target: Target, method: str, path: str, length: int, token: str | None) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(target.url).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def _exchange(target: Target, method: str, path: str, body: bytes, token: str | None = None) -> None:
    """One request with a connection of its own."""
    reader, writer = await _connect(target)
    try:
        writer.write(_head(target, method, path, len(body), token) + body)
        await _answer(reader)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, length = head.partition(b"content-length: ")
    await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
