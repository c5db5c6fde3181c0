"""On a crowded machine, a program that waits for a processor is not idle."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest

from weft_trainer.machine import usage
from weft_trainer.machine.usage import SystemMetrics
from weft_trainer.service.vitals import Vitals

SECOND = 1_000_000_000


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """It has used some CPU, and uses no more."""
    with subprocess.Popen(["bash", "-c", "for ((n = 0; n < 50000; n++)); do :; done; exec sleep 600"]) as process:
        sleeper = psutil.Process(process.pid)
        while (sleeper.name(), sleeper.status()) != ("sleep", psutil.STATUS_SLEEPING):
            time.sleep(0.01)
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("ran", "waited", "slices", "share"),
    [
        pytest.param(SECOND // 50, SECOND // 50 * 9, 5, 0.1, id="computes"),
        pytest.param(SECOND // 50, SECOND // 50 * 9, 1000, 1, id="polls"),
        pytest.param(SECOND // 50, 0, 5, 1, id="does not wait"),
    ],
)
def test_what_a_process_that_computes_would_have_used(
    monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes], ran: int, waited: int, slices: int, share: float
) -> None:
    monkeypatch.setattr(usage, "_schedule", {child.pid: (ran, waited, slices)}.__getitem__)
    metrics, processes = SystemMetrics([]), [psutil.Process(child.pid)]
    used = metrics.read(processes)["cpu_percent"]
    assert used > 0
    assert metrics.demand == pytest.approx(used / share, abs=0.1 / share)
    metrics.read(processes)
    assert metrics.demand == 0, "only what has come since the last reading counts"


def test_a_process_that_has_not_had_its_turn_at_all(
    monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    """The kernel counts its wait only when it runs again. A process that sleeps does not run either."""
    monkeypatch.setattr(usage, "_schedule", lambda pid: (SECOND, 0, 5))
    metrics, process = SystemMetrics([]), psutil.Process(child.pid)
    metrics.read([process])
    metrics.read([process])
    assert metrics.demand == 0
    monkeypatch.setattr(process, "status", lambda: psutil.STATUS_RUNNING)
    metrics.read([process])
    assert metrics.demand == 100


def test_the_kernel_tells_for_how_long_a_process_waits() -> None:
    ran, waited, slices = usage._schedule(os.getpid())
    assert ran > 0
    assert waited >= 0
    assert slices > 0


def test_a_program_that_would_have_worked_is_not_idle() -> None:
    vitals = Vitals(lambda: False, lambda request: None)
    vitals.begin()
    vitals._active_at -= 60
    assert vitals.read({}, demand=3.0)["idle_seconds"] >= 60
    assert vitals.read({}, demand=30.0)["idle_seconds"] < 60
