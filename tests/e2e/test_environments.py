"""Jobs that wait for an environment: they hold nothing, and no build outlives the jobs that wait for it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.stack import Stack, eventually, manifest, running

import weft
from weft_core import processes
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision import waits

IMAGE = "python:3.11"


@pytest.fixture(scope="module")
def silent_index() -> Iterator[str]:
    """The URL of an index of packages that takes every connection and never answers."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        server.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def slow(silent_index: str, environments: Path) -> Iterator[Stack]:
    """A stack in which no environment is ready, and none ever will be."""
    # With pip, as uv would find pip's own packages in its cache and get on.
    settings = {
        "WEFT_ENVIRONMENTS_DIR": str(environments),
        "WEFT_INSTALLER": "pip",
        "PIP_INDEX_URL": silent_index,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_CONFIG_FILE": "/dev/null",
        "WEFT_ENGINES__LOCAL__TYPE": "local",
        "WEFT_ENGINES__LOCAL__CPUS": "2",
    }
    with running(environments / "home", settings) as stack:
        yield stack


@pytest.fixture
def recipe(environments: Path) -> waits.Recipe:
    """Of the image that never gets ready."""
    found = EnvironmentBuilder(environments).locate(IMAGE).recipe
    assert found
    return found


def builders(recipe: waits.Recipe) -> list[processes.Identity]:
    """The processes that install."""
    return processes.with_environment(f"WEFT_BUILDS={recipe.folder}")


def a_job(stack: Stack, **changes: object) -> weft.Job:
    return stack.train(manifest("true", cpus=2, **changes), None)


def waits_for_the_build(job: weft.Job) -> bool:
    return job.refresh().reason.startswith(f"building environment {IMAGE}")


def test_jobs_that_wait_keep_no_ready_job_out_and_the_last_ones_halt_ends_the_build(
    slow: Stack, recipe: waits.Recipe
) -> None:
    waiting = [a_job(slow) for _ in range(2)]
    for job in waiting:
        eventually(partial(waits_for_the_build, job), "the build")
    ready = a_job(slow, framework={"name": "custom", "version": sys.prefix, "command": "true"}).wait()
    assert ready.state == "COMPLETED"
    assert [job.refresh().state for job in waiting] == ["QUEUED", "QUEUED"]
    assert any(event.kind == "image" for event in waiting[0].events())
    eventually(lambda: builders(recipe), "the installation")

    waiting[0].halt()
    eventually(lambda: waiting[0].refresh().state == "HALTED", "the first halt")
    assert waits.is_wanted(recipe.folder)
    waiting[1].halt()
    eventually(lambda: not waits.is_building(recipe.folder), "the end of the build")
    assert not builders(recipe)
    assert not Path(recipe.folder).exists()


def test_weft_down_ends_builds(slow: Stack, recipe: waits.Recipe) -> None:
    """The next start begins them again: tests/workers/engines/test_environments.py."""
    a_job(slow)
    eventually(lambda: builders(recipe), "the build")
    slow.down()
    assert not waits.is_building(recipe.folder)
    assert not builders(recipe)
