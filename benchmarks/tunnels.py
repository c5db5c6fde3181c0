"""How much a tunnel carries, through one API process and through two, and how soon it opens, in one run.

Real API processes with Postgres and Redis, a real agent, and the client library. One command writes zeros, another one
takes them; beside them, the same command writes into a pipe, which is what the machine could do. CPU seconds of each
process say where the time goes. ``WEFT_BENCH_TUNNEL_MB`` (256) is how much is sent; the median of
``WEFT_BENCH_ROUNDS`` (3) counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import psutil
from tests.api.test_real_agent import RUNTIME

from benchmarks.logs.service import Service
from benchmarks.table import show
from weft import Client
from weft.transport.tunnel import PIECE, Frame

SIZE = int(os.environ.get("WEFT_BENCH_TUNNEL_MB", "256")) * 1_000_000
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "3"))
GOAL = 50
_OPENED = 20
_PATIENCE = 60.0
_MANIFEST = "name: tunnels\nframework: {name: python, command: sleep 100000}\n"


def measure(folder: Path) -> None:
    service = Service(folder, apis=2)
    agent = None
    try:
        job = service.person.submit(_MANIFEST)["id"]
        attempt = service.remote.attempt(job)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(RUNTIME),
            "WEFT_API_URL": service.apis[0].url,
            "WEFT_ATTEMPT_TOKEN": attempt.token,
            "WEFT_RANK": "0",
            "WEFT_NUM_LEARNERS": "1",
            "WEFT_WORKDIR": str(folder / "learner"),
            "WEFT_CACHE_DIR": str(folder / "cache"),
        }
        agent = subprocess.Popen([sys.executable, "-m", "weft_trainer"], env=environment)
        rows = [["a pipe", f"{median(_pipe() for _ in range(ROUNDS)):,.0f}", "", "", "", ""]]
        processes = [psutil.Process(api.pid) for api in service.apis] + [psutil.Process(agent.pid), psutil.Process()]
        for name, number in (("one API process", 0), ("two API processes", 1)):
            client = service.client(number)
            _await(client, job)
            opening = median(_open(client, job) for _ in range(_OPENED))
            for way, flow in (("out", _out), ("in", _in)):
                rates, before = [], [_cpu(process) for process in processes]
                for _ in range(ROUNDS):
                    begun = time.perf_counter()
                    flow(client, job)
                    rates.append(SIZE / 1e6 / (time.perf_counter() - begun))
                total = SIZE * ROUNDS / 1e9
                used = [(_cpu(process) - was) / total for process, was in zip(processes, before, strict=True)]
                api = sum(used[:2])
                rows.append(
                    [
                        f"{name}, {way}",
                        f"{median(rates):,.0f}, > {GOAL}",
                        f"{api:.1f} s",
                        f"{used[2]:.1f} s",
                        f"{used[3]:.1f} s",
                        f"{opening * 1000:.0f} ms",
                    ]
                )
    finally:
        if agent is not None:
            agent.kill()
            agent.wait()
        service.stop()
    show(
        f"A tunnel, {SIZE / 1e6:.0f} MB in each direction, median of {ROUNDS}; CPU for each GB",
        ["through", "MB/s, goal", "API", "agent", "client", "opens and ends"],
        rows,
    )


def _await(client: Client, job: str) -> None:
    """Until the program runs."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with client.jobs.tunnel(job, "exec", command=["true"]) as tunnel:
            for _ in tunnel:
                pass
            if "exit_code" in tunnel.end:
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the learner does not start: {tunnel.end}")
        time.sleep(0.2)


def _open(client: Client, job: str) -> float:
    begun = time.perf_counter()
    _await(client, job)
    return time.perf_counter() - begun


def _out(client: Client, job: str) -> None:
    with client.jobs.tunnel(job, "exec", command=["head", "-c", str(SIZE), "/dev/zero"]) as tunnel:
        taken = sum(len(data) for frame, data in tunnel if frame is Frame.OUTPUT)
    if taken != SIZE:
        raise RuntimeError(f"{taken} of {SIZE} bytes came")


def _in(client: Client, job: str) -> None:
    with client.jobs.tunnel(job, "exec", command=["wc", "-c"]) as tunnel:

        def feed() -> None:
            piece = bytes(PIECE)
            for start in range(0, SIZE, PIECE):
                tunnel.write(piece[: min(PIECE, SIZE - start)])
            tunnel.tell(Frame.DONE)

        threading.Thread(target=feed, daemon=True).start()
        said = b"".join(data for frame, data in tunnel if frame is Frame.OUTPUT)
    if int(said) != SIZE:
        raise RuntimeError(f"{said!r} of {SIZE} bytes arrived")


def _pipe() -> float:
    begun = time.perf_counter()
    with subprocess.Popen(["head", "-c", str(SIZE), "/dev/zero"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        while os.read(writer.stdout.fileno(), PIECE):
            pass
    return SIZE / 1e6 / (time.perf_counter() - begun)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
