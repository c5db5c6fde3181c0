"""A worker's sweeper with the double for an engine, in a process of its own; and its Celery worker's part: hints."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import structlog
from cryptography.fernet import Fernet
from pydantic import SecretStr
from tests.servers import Servers

from benchmarks.queue.double import Double, SharedDouble
from weft_core.settings import Settings
from weft_workers.context import make_context
from weft_workers.sweeper import Sweeper


def run(settings: Settings, opened: int, spare: int, shared: str) -> None:
    """Sweep until SIGTERM."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    double = SharedDouble(spare, shared) if shared else Double(opened, spare)
    context = make_context(settings, "inst-bench", {"local": double}, connections=14)
    sweeper = Sweeper(replace(context, owner=f"bench:{os.getpid()}"))
    signal.signal(signal.SIGTERM, lambda *_: sweeper.stop())
    threading.current_thread().name = "sweeper"
    sweeper.run()


def start(settings: Settings, opened: int, spare: int, number: int, *, shared: str = "") -> list[BaseProcess]:
    """Workers, each with a double of its own, or with the one in the Redis at ``shared``."""
    arguments = (settings, opened, spare, shared)
    made: list[BaseProcess] = [
        multiprocessing.get_context("spawn").Process(target=run, args=arguments) for _ in range(number)
    ]
    for process in made:
        process.start()
    return made


def worker_settings(servers: Servers, database_url: str, home: Path, **more: Any) -> Settings:
    """Settings of workers that use these servers, with a new key."""
    return Settings(
        home=home,
        database_url=SecretStr(database_url),
        redis_url=SecretStr(servers.redis.url),
        secret_keys=[SecretStr(Fernet.generate_key().decode())],
        **more,
    )


def postgres_pid(servers: Servers) -> int:
    """The process of these servers' Postgres, whose children serve its connections."""
    return int((servers.postgres.data / "postmaster.pid").read_text().split()[0])


def stop(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


def used(processes: list[BaseProcess], postgres: int) -> float:
    """Seconds of processor time that the workers and Postgres have used so far, including processes that have ended."""
    found = 0.0
    for process in (*(psutil.Process(each.pid) for each in processes), psutil.Process(postgres)):
        for member in (process, *process.children(recursive=True)):
            times = member.cpu_times()
            found += times.user + times.system
        found += process.cpu_times().children_user + process.cpu_times().children_system
    return found
