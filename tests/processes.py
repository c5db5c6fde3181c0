"""The processes of this machine, and those that tests start."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import psutil

FORKS = multiprocessing.get_context("forkserver")
"""Makes processes that have imported the API and the worker when they begin: each would take a second of a core."""
FORKS.set_forkserver_preload(["tests.faults.service"])


def all_processes(attributes: list[str] | None = None) -> Iterator[psutil.Process]:
    """Every process that runs now, as `psutil.process_iter` yields them.

    psutil keeps the objects of earlier calls. Where a process has ended and another one has its PID, the object that
    it keeps is of the one that ended: it raises NoSuchProcess when it is to send a signal. Linux counts up to 32,768
    PIDs by default, fewer than the tests start processes.
    """
    psutil.process_iter.cache_clear()
    return psutil.process_iter(attributes)
