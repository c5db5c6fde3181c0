"""One stack for all tests: those that break a part of it wait until it is whole again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.desk import Desk
from tests.e2e.stack import REPOSITORY, Stack, local_engine, running

import weft

SETTINGS = {
    # Elastic jobs get new learners soon.
    "WEFT_TIMINGS__ELASTIC_COOLDOWN": "4",
    # The repositories of these tests.
    "WEFT_OUTGOING__ALLOW": json.dumps(["127.0.0.1"]),
    # Jobs that write nothing soon get a warning.
    "WEFT_TIMINGS__NO_OUTPUT": "7",
}


def engines(factory: pytest.TempPathFactory) -> dict[str, str]:
    """The engines of an installation: ``local``, whose programs wait for files of the tests, ``apart``, which is as by
    default, and ``open``, which does not keep jobs of different projects apart."""
    # Seven GPUs that are not there, for tests of what launchers make of GPUs. CPUs and memory are the machine's.
    others = {"apart": {"type": "local", "gpus": 0}, "open": {"type": "local", "gpus": 0, "isolation": "none"}}
    return {
        "WEFT_ENGINES": json.dumps({"local": local_engine(factory, gpus=7), **others}),
        "WEFT_DEFAULT_ENGINE": "local",
    }


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack") / "home", SETTINGS | engines(tmp_path_factory)) as started:
        yield started


@pytest.fixture(scope="session")
def digits(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST's four files, also in the embedded S3 where the examples look for them."""
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run([sys.executable, str(REPOSITORY / "examples/data/digits.py"), str(folder)], check=True)
    stack.client.data.put(folder, "default:mnist-data")
    stack.client.data.create("default:mnist-models")
    return folder


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Halt the jobs of a test that has failed: they would keep the room that the next tests need."""
    report = yield
    if report.when == "call" and report.failed and isinstance(stack := item.funcargs.get("stack"), Stack):
        with suppress(weft.WeftError, OSError):
            for job in stack.client.jobs.list():
                if job.state not in ("COMPLETED", "FAILED", "HALTED"):
                    job.halt(grace_seconds=0)
    return report
