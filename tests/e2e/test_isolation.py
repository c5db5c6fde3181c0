"""Jobs of projects that do not trust each other, on one machine."""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.e2e.stack import PROGRAMS, Stack, eventually, follow_to, lines, manifest

import weft
from weft import Client
from weft_workers.engines.local import isolation
from weft_workers.supervision import netlink

PASSWORD = "correct-horse-battery-7"
_NETWORK = {
    "another job's port",
    "another job's port at the machine's address",
    "a service on loopback",
    "a service at the machine's address",
}


@pytest.fixture(scope="module")
def stranger(stack: Stack) -> Client:
    """A user of another project, which an administrator has to allow, as one engine does not keep jobs apart."""
    eventually(lambda: stack.client.engine("open").exposed, "the worker's look at the engine")
    with pytest.raises(weft.errors.Conflict, match="engine open does not keep jobs of different projects apart"):
        stack.client.projects.create("strangers")
    stack.client.users.create("mallory", PASSWORD)
    refused = stack.weft("projects", "create", "strangers", "--owner", "mallory", check=False)
    assert (refused.returncode, "--allow-untrusted" in refused.stderr) == (1, True)
    stack.weft("projects", "create", "strangers", "--owner", "mallory", "--allow-untrusted")
    return Client(stack.client.url, Client(stack.client.url).login("mallory", PASSWORD, "strangers"))


def test_people_hear_which_engine_does_not_keep_jobs_apart(stack: Stack) -> None:
    word = "jobs are not kept apart: its setting isolation is none"
    assert word in stack.weft("engines", "open").stdout
    shown = stack.weft("engines", "apart").stdout
    if isolation.obstacle():
        assert "jobs are not kept apart" in shown
    elif isolation.network_obstacle():
        assert "jobs share a network" in shown
    else:
        assert "jobs are kept apart, also in the network" in shown
    log = stack.home / "logs/supervisor.log"
    eventually(lambda: "engine open does not keep jobs apart" in log.read_text(), "a word about the engine")


def test_a_job_reaches_nothing_of_another_project_or_of_the_server(stack: Stack, stranger: Client) -> None:
    if obstacle := isolation.obstacle():
        pytest.skip(f"NOT RUN: this machine allows no sandbox: {obstacle}")
    reached, own = attack(stack, stranger, "apart")
    shared = _NETWORK if isolation.network_obstacle() else set()
    assert {name for name, success in reached.items() if success} == shared
    assert own[0] == 1, "the processes are the job's own, and the first is its agent"
    assert len(own) < 10


def test_a_command_in_a_tunnel_reaches_no_more_than_the_program(stack: Stack, stranger: Client) -> None:
    """In a sandbox, the same; it sees the program's processes, and no more."""
    if obstacle := isolation.obstacle():
        pytest.skip(f"NOT RUN: this machine allows no sandbox: {obstacle}")
    reached, own = attack(stack, stranger, "apart", tunnel=True)
    shared = _NETWORK if isolation.network_obstacle() else set()
    assert {name for name, success in reached.items() if success} == shared
    assert own[0] == 1
    assert len(own) < 12


def test_the_attacks_are_real(stack: Stack, stranger: Client) -> None:
    """Where jobs are not kept apart, the same program reaches most of it."""
    reached, _ = attack(stack, stranger, "open")
    assert reached["the server's keys"]
    assert reached["the server's keys by a relative path"]
    assert reached["an administrator's token"]
    assert reached["the attempts' tokens"]
    assert reached["another job's files"]
    assert reached["another job's processes"]
    assert reached["the server's process"]
    assert reached["Postgres"]
    assert reached["Redis"]
    assert reached["a file in /var/tmp"]
    assert {name for name in _NETWORK if reached[name]} == _NETWORK


def test_projects_share_the_store_and_no_object(stack: Stack, stranger: Client, tmp_path: Path) -> None:
    """Both have a container `pictures`; a learner's keys open its inputs and results alone."""
    for client, word in ((stack.client, "ours"), (stranger, "theirs")):
        for key in ("plain/a.txt", "stream/b.txt", "secret/c.txt"):
            file = tmp_path / word / key
            file.parent.mkdir(parents=True)
            file.write_text(f"{word} {key}")
        client.data.put(tmp_path / word, "default:pictures")
    inputs = [
        {"id": "plain", "datastore": "default", "training_data": {"container": "pictures", "prefix": "plain"}},
        {
            "id": "streamed",
            "datastore": "default",
            "training_data": {"container": "pictures", "prefix": "stream", "mode": "stream"},
            "training_results": {"container": "pictures", "prefix": "models"},
        },
    ]
    # The project `default` has its buckets without a prefix.
    wanted = manifest("python shared_store.py pictures", engine="apart", memory="256 MiB", data_stores=inputs)
    job = stranger.train(wanted, PROGRAMS).wait(timeout=900, check=False)
    assert job.state == "COMPLETED", [job.reason, *lines(job)]
    [line] = [text for text in lines(job) if text.startswith("FOUND")]
    assert json.loads(line.removeprefix("FOUND ")) == {
        "downloaded": "theirs plain/a.txt",
        "streamed": {"b.txt": "theirs stream/b.txt"},
        "in parts": "the",
        "its own prefix": True,
        "its own container": False,
        "another prefix": False,
        "another project": False,
        "the installation": False,
    }
    assert "model.txt" in {file.path for file in job.files()}
    assert job.id in {entry.key.split("/")[1] for entry in stranger.data.objects("default:pictures/models")}


def attack(stack: Stack, stranger: Client, engine: str, *, tunnel: bool = False) -> tuple[dict[str, bool], list[int]]:
    """What a job on this engine reaches while a job of another project runs there, and the processes that it sees.

    Args:
        tunnel: a command in a tunnel is the attacker, not the job's program.
    """
    victim = stack.train(plain("python victim.py", engine))
    try:
        follow_to(victim, "^the secret is there")
        [at] = [line for line in lines(victim) if line.startswith("the secret is there")]
        [folder] = stack.home.glob(f"runs/*{victim.id}*/learner-0")
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as host_file, greeting() as service:
            words = [stack.home, folder, stack.parts()["api"], host_file.name]
            command = f"python attack.py {' '.join(map(str, words))}"
            environment = {
                "API_PORT": str(urlsplit(stack.client.url).port),
                "VICTIM_PORT": at.split()[-1],
                "SERVICE_PORT": str(service),
                "MACHINE_ADDRESS": next(iter(netlink.addresses()), "127.0.0.1"),
            }
            program = "echo ready; until test -e stop; do sleep 0.2; done" if tunnel else command
            job = stranger.train(plain(program, engine, env=environment), PROGRAMS)
            output = through_a_tunnel(stranger, job, command) if tunnel else []
            job = job.wait(timeout=900, check=False)
        assert job.state == "COMPLETED", lines(job)
        said = dict(line.split(" ", 1) for line in output or lines(job) if line.startswith(("reached", "own")))
        return json.loads(said["reached"]), json.loads(said["own"])
    finally:
        victim.halt(grace_seconds=0)
        victim.wait(timeout=900, check=False)


def through_a_tunnel(client: Client, job: weft.Job, command: str) -> list[str]:
    """The output of a command beside a job's program, which then ends."""
    follow_to(job, "^ready")
    # The agent is the parent of what it runs, and a shell between them would be taken for it.
    said = _run(client, job, command.split())
    with suppress(weft.errors.TunnelBroken):  # the program may end before the command that ends it
        _run(client, job, ["touch", "stop"])
    return said.splitlines()


def _run(client: Client, job: weft.Job, argv: list[str]) -> str:
    with client.jobs.tunnel(job.id, "exec", command=argv) as opened:
        said = b"".join(data for _, data in opened)
        opened.check()
    return said.decode()


@contextmanager
def greeting() -> Iterator[int]:
    """The port of a service of the machine, which asks nobody for credentials."""

    class Greet(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"hello")

    with socketserver.ThreadingTCPServer(("0.0.0.0", 0), Greet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
    thread.join()


def plain(command: str, engine: str, **changes: Any) -> dict[str, Any]:
    """Without a data store."""
    job = manifest(command, engine=engine, memory="256 MiB", **changes)
    del job["data_stores"]
    return job
