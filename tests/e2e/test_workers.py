"""`launch_workers` and its siblings, as a notebook uses them, on a whole stack."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.stack import Stack, eventually, manifest

import weft

ECHO = """
import os, socket
rank, server = os.environ.get("RANK", "0"), socket.create_server(("", int(os.environ["WEFT_PORT"])))
print(rank, os.environ.get("WORLD_SIZE"), os.environ.get("GREETING"), flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(f"worker {rank}".encode())
    connection.close()
"""


@pytest.fixture
def notebook(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[weft.Client]:
    """This process as a notebook on the stack; its workers are gone afterwards."""
    yield stack.client
    weft.stop_workers(client=stack.client)
    eventually(lambda: not stack.learners(), "workers are left")


def ask(worker: dict[str, object]) -> str:
    with socket.create_connection((str(worker["address"]), int(str(worker["port"]))), 10) as connection:
        return connection.recv(100).decode()


def answers(worker: dict[str, object]) -> str:
    """What a worker says, once it listens."""

    def tried() -> str:
        try:
            return ask(worker)
        except OSError:
            return ""

    return eventually(tried, f"{worker} answers")


def test_workers_have_addresses_and_stop_together(notebook: weft.Client) -> None:
    ids = weft.launch_workers(
        n=2, cpu=0.5, memory=0.5, framework="python", code=ECHO, env={"GREETING": "hello"}, client=notebook
    )
    assert len(set(ids)) == 2
    workers = weft.await_workers(ids, timeout_seconds=120, client=notebook)
    assert [worker["id"] for worker in workers] == ids
    assert [answers(worker) for worker in workers] == ["worker 0", "worker 1"]
    assert {worker["status"] for worker in weft.list_workers(client=notebook)} == {"running"}
    job = notebook.job(str(workers[0]["job"]))
    eventually(lambda: {line.text for line in job.logs()} == {"0 2 hello", "1 2 hello"}, "their lines")
    with pytest.raises(weft.WorkersError, match="stop together"):
        weft.stop_workers(ids[0], client=notebook)
    assert answers(workers[0]) == "worker 0", "nothing was stopped"
    weft.stop_workers(workers, client=notebook)
    assert job.wait(timeout=900, check=False).state == "HALTED"
    assert {worker["status"] for worker in weft.list_workers(client=notebook)} == {"stopped"}


def test_a_script_with_arguments_to_its_end(notebook: weft.Client, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def double(x): return 2 * x\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys; from helper import double; print(double(int(sys.argv[1]))); sys.exit(int(sys.argv[2]))"
    )
    launch = partial(weft.launch_workers, cpu=0.5, memory=0.5, framework="python", script=script, client=notebook)
    ids = launch(args=[21, 0])
    [done] = weft.await_workers(ids, wait_for_completion=True, timeout_seconds=120, client=notebook)
    assert (done["status"], done["exit_code"]) == ("succeeded", 0)
    assert [line.text for line in notebook.job(str(done["job"])).logs()] == ["42"]
    failing = launch(args=[21, 3])
    with pytest.raises(weft.WorkersError, match="exit code 3") as error:
        weft.await_workers(failing, wait_for_completion=True, timeout_seconds=120, client=notebook)
    assert [failure["exit_code"] for failure in error.value.failures] == [3]


def test_a_part_of_the_workers_is_an_error_and_given_back(notebook: weft.Client, stack: Stack) -> None:
    cpus = stack.client.engine("local").capacity["cpus"]
    holder = stack.train(manifest("sleep 600", cpus=cpus / 2))
    eventually(lambda: holder.refresh().state == "PROCESSING", "the holder runs")
    launch = partial(weft.launch_workers, n=2, memory=0.2, framework="python", client=notebook)
    ids = launch(cpu=cpus / 2, code="print('started')")
    waiting = notebook.job(ids[0].partition(".")[0])
    eventually(lambda: "CPU" in waiting.refresh().reason, "it shows what it waits for")
    with pytest.raises(weft.WorkersTimeout, match=r"none of them runs .*CPU") as error:
        weft.await_workers(ids, timeout_seconds=1, client=notebook)
    assert [failure["id"] for failure in error.value.failures] == ids
    job = waiting.refresh()
    assert job.state == "HALTED"
    assert not job.attempts, "not even one of them was started"
    assert holder.refresh().state == "PROCESSING"
    with pytest.raises(weft.WorkersError, match="can never fit"):
        weft.await_workers(launch(cpu=cpus, code="pass"), client=notebook)
    holder.halt(0)
    holder.wait(900, check=False)


NOTEBOOK = """
import sys, time
import weft, weft.workers
weft.workers._LEASE_SECONDS, weft.workers._RENEW_SECONDS = 20, 1
ids = weft.launch_workers(n=2, cpu=0.5, memory=0.5, framework="python", code="import time; time.sleep(600)")
weft.await_workers(ids, timeout_seconds=600)
print(ids[0], flush=True)
sys.stdin.readline()
"""


def start_notebook(stack: Stack) -> tuple[subprocess.Popen[str], weft.Job]:
    process = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK],
        env=stack.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    job = stack.client.job(process.stdout.readline().partition(".")[0])
    assert job.state == "PROCESSING"
    return process, job


def test_workers_end_with_the_notebooks_process(stack: Stack) -> None:
    process, job = start_notebook(stack)
    time.sleep(22)
    assert job.refresh().state == "PROCESSING", "it renews its lease"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    job = job.wait(timeout=900, check=False)
    assert (job.state, job.reason) == ("HALTED", "the program that launched it has not been heard of for 20s")
    assert stack.learners() == []
    process, job = start_notebook(stack)
    process.communicate("\n")
    assert process.returncode == 0
    assert job.refresh().desired == "HALTED", "an orderly end says so itself"
    assert job.wait(timeout=900, check=False).reason == "halted by request"


def test_idle_workers_end(notebook: weft.Client) -> None:
    ids = weft.launch_workers(
        cpu=0.5, memory=0.5, framework="python", code="import time; time.sleep(600)",
        idle_minutes=0.1, client=notebook,
    )  # fmt: skip
    job = notebook.job(ids[0].partition(".")[0]).wait(timeout=900, check=False)
    assert (job.state, job.reason) == ("HALTED", "idle for 6s: nothing was printed, no CPU or GPU used")
