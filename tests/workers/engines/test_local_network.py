"""The network of a gang: its learners, and the ways out of it.

tests/e2e/test_isolation.py attacks from inside a job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.workers.engines.bench import FOREVER, Bench, kill, until

import weft_core
import weft_workers
from weft_core import processes
from weft_core.engine import LaunchRefused
from weft_core.nowhere import is_nowhere
from weft_core.outgoing import Outgoing
from weft_workers.engines.local import isolation
from weft_workers.engines.local.places import places
from weft_workers.supervision import netlink, network, relay, sandbox, spawn

pytestmark = pytest.mark.slow

# Writes what a connection to each address has sent into a file.
_ASK = """
import json, socket, sys
def ask(host, port):
    try:
        with socket.create_connection((host, port), 60) as connection:
            connection.settimeout(60)
            return connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__
"""
_REFUSED = {"ConnectionRefusedError", "ConnectionResetError"}


@pytest.fixture(autouse=True)
def _able() -> None:
    if obstacle := isolation.network_obstacle():
        pytest.skip(f"NOT RUN: this machine allows no network of its own: {obstacle}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.engine = bench.new_engine(isolation="strict", host_mounts=[tmp_path])
    yield bench
    bench.close()


@contextmanager
def serving(serve: Callable[[socket.socket], object], host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a server that serves each connection."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                serve(connection)

    with socket.create_server((host, 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def greeting(connection: socket.socket) -> None:
    connection.sendall(b"hello")


def machine_address() -> str:
    own = [address for address in netlink.addresses() if ":" not in address]
    if not own:
        pytest.skip("NOT RUN: this machine has no address besides loopback")
    return own[0]


def asked(bench: Bench, *addresses: tuple[str, int], engine: Any = None, **changes: Any) -> list[str]:
    """What a learner hears at these addresses."""
    script = f"{_ASK}\nopen(f'{{OUT}}/heard', 'w').write(json.dumps([ask(*each) for each in {list(addresses)}]))"
    spec = replace(bench.spec(script), **changes)
    (engine or bench.engine).launch(spec)
    [learner] = bench.ended(spec).values()
    assert learner.exit_code == 0, learner
    heard: list[str] = json.loads((bench.out / "heard").read_text())
    return heard


def test_a_service_of_the_machine_answers_no_learner_whatever_its_address(bench: Bench) -> None:
    with serving(greeting, "0.0.0.0") as port:
        own = machine_address()
        addresses = [("127.0.0.1", port), (own, port), ("localhost", port), ("127.0.0.2", port), ("0.0.0.0", port)]
        assert set(asked(bench, *addresses)) <= _REFUSED
        bench.stop(bench.spec(""))
        open_engine = bench.new_engine()  # with isolation none
        assert asked(bench, *addresses, engine=open_engine) == ["hello"] * 5, "the attack is real"


def test_a_learner_reaches_the_services_of_its_settings_and_no_other_address_of_them(bench: Bench) -> None:
    with serving(greeting) as store, serving(greeting) as other, serving(greeting) as listed:
        engine = bench.new_engine(isolation="strict", host_mounts=[bench.folder], reachable=[f"localhost:{listed}"])
        addresses = [("127.0.0.1", store), ("127.0.0.1", listed), ("127.0.0.1", other), ("127.0.0.2", store)]
        heard = asked(bench, *addresses, engine=engine, own_endpoints=(f"http://127.0.0.1:{store}",))
    assert heard[:2] == ["hello", "hello"]
    assert set(heard[2:]) <= _REFUSED


def test_places_are_what_administrators_name_and_what_the_service_itself_may_call(bench: Bench) -> None:
    spec = replace(
        bench.spec(""),
        api_url="http://127.0.0.1:8080",
        own_endpoints=("http://[::1]:8333",),
        endpoints=("http://127.0.0.1:9000", "http://127.0.0.2:9000", "http://user@[", "https://127.0.0.3"),
    )
    environment = {"https_proxy": "127.0.0.1:3128", "NO_PROXY": "127.0.0.1", "ALL_PROXY": "socks5://127.0.0.1:1080"}
    found = places(spec, ["127.0.0.1:5000"], Outgoing(["127.0.0.1"]), environment)
    assert found == [
        ("127.0.0.1", 8080),
        ("::1", 8333),
        ("127.0.0.1", 3128),
        ("127.0.0.1", 1080),
        ("127.0.0.1", 5000),
        ("127.0.0.1", 9000),
    ]


def test_learners_find_each_other_and_no_other_gang_does(bench: Bench) -> None:
    """At loopback and at the machine's address, also the learner that comes later."""
    own = machine_address()
    script = f"""{_ASK}
import os, time
rank = int(os.environ["WEFT_RANK"])
if rank == 0:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        open(f"{{OUT}}/port.new", "w").write(str(listener.getsockname()[1]))
        os.rename(f"{{OUT}}/port.new", f"{{OUT}}/port")
        while True:
            with listener.accept()[0] as connection:
                connection.sendall(b"gang")
while not os.path.exists(f"{{OUT}}/port"):
    time.sleep(0.01)
port = int(open(f"{{OUT}}/port").read())
open(f"{{OUT}}/heard-{{rank}}.new", "w").write(json.dumps([ask("127.0.0.1", port), ask({own!r}, port)]))
os.rename(f"{{OUT}}/heard-{{rank}}.new", f"{{OUT}}/heard-{{rank}}")
time.sleep(600)
"""
    spec = bench.spec(script, learners=2)
    bench.engine.launch(spec)
    bench.said("heard-1")
    bench.engine.grow(spec, [2])
    bench.said("heard-2")
    assert [json.loads((bench.out / f"heard-{rank}").read_text()) for rank in (1, 2)] == [["gang", "gang"]] * 2
    port = int((bench.out / "port").read_text())
    stranger = bench.spec(
        f"{_ASK}\nopen(f'{{OUT}}/stranger', 'w').write(json.dumps([ask('127.0.0.1', {port}), ask({own!r}, {port})]))",
        job="stranger",
    )
    bench.engine.launch(stranger)
    bench.ended(stranger)
    assert set(json.loads((bench.out / "stranger").read_text())) <= _REFUSED
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 60)


def test_addresses_of_metadata_services_are_refused_and_the_refusal_is_logged(bench: Bench) -> None:
    machine_address()
    heard = asked(bench, ("169.254.169.254", 80))
    assert set(heard) <= _REFUSED
    log = (bench.run(bench.spec("")).path / "supervisor.log").read_text()
    assert "refused: 169.254.169.254 port 80 is not for learners" in log


@pytest.mark.parametrize(
    ("address", "nowhere"),
    [
        ("169.254.169.254", True),
        ("fd00:ec2::254", True),
        ("fe80::1", True),
        ("::ffff:8.8.8.8", True),
        ("127.0.0.1", True),
        ("8.8.8.8", False),
        ("10.0.0.1", False),
        ("2606:4700::1111", False),
    ],
)
def test_nowhere(address: str, nowhere: bool) -> None:
    assert is_nowhere(address) is nowhere


def test_a_relay_that_dies_is_replaced(bench: Bench) -> None:
    with serving(greeting) as port:
        script = f"""{_ASK}
import os, time
open(f"{{OUT}}/first", "w").write(ask("127.0.0.1", {port}))
while not os.path.exists(f"{{OUT}}/go"):
    time.sleep(0.01)
while (said := ask("127.0.0.1", {port})) != "hello":
    time.sleep(0.1)
open(f"{{OUT}}/second", "w").write(said)
"""
        spec = replace(bench.spec(script), own_endpoints=(f"http://127.0.0.1:{port}",))
        bench.engine.launch(spec)
        assert until((bench.said("first")).read_text) == "hello"
        kill(relay_of(bench, spec))
        (bench.out / "go").touch()
        [learner] = bench.ended(spec).values()
    assert (learner.exit_code, (bench.out / "second").read_text()) == (0, "hello")


def test_a_broken_connection_breaks_nothing_else(bench: Bench) -> None:
    """Whichever side breaks it: the same relay still serves the others afterwards."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection.sendall(bytes(1 << 20))

    with serving(serve) as port:
        script = f"""
import os, socket, time
for _ in range(20):
    with socket.create_connection(("127.0.0.1", {port})) as connection:
        connection.recv(1 << 20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    with socket.create_connection(("127.0.0.1", {port})) as connection:
        connection.recv(1 << 20)
open(f"{{OUT}}/broken", "w").close()
time.sleep(600)
"""
        spec = replace(bench.spec(script), own_endpoints=(f"http://127.0.0.1:{port}",))
        bench.engine.launch(spec)
        bench.agent_of(spec)
        before = relay_of(bench, spec)
        bench.said("broken")
        assert relay_of(bench, spec) == before
        bench.stop(spec)


def test_nothing_is_left_of_a_network(bench: Bench) -> None:
    spec = bench.spec(FOREVER)
    bench.engine.launch(spec)
    bench.agent_of(spec)
    found = relay_of(bench, spec)
    bench.stop(spec)
    until(lambda: processes.identity(found.pid) != found)


def test_the_machine_reaches_a_learners_own_port_and_no_other_job_does(bench: Bench) -> None:
    script = """
import os, socket
with socket.create_server(("127.0.0.1", int(os.environ["WEFT_PUBLISHED_PORT"]))) as listening:
    open(f"{OUT}/port", "w").write(os.environ["WEFT_PUBLISHED_PORT"])
    while True:
        connection, _ = listening.accept()
        connection.sendall(b"learner")
        connection.close()
"""
    spec = bench.spec(script)
    bench.engine.launch(spec)
    port = int(until(lambda: bench.said("port").read_text()))

    def answer() -> str:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as connection:
            return connection.recv(100).decode()
        return ""

    until(lambda: answer() == "learner")
    kill(publisher_of(bench, spec))
    until(lambda: answer() == "learner")  # by another publisher
    stranger = bench.spec(
        f"{_ASK}\nopen(f'{{OUT}}/stranger', 'w').write(json.dumps([ask('127.0.0.1', {port})]))", job="stranger"
    )
    bench.engine.launch(stranger)
    bench.ended(stranger)
    assert set(json.loads((bench.out / "stranger").read_text())) <= _REFUSED
    bench.stop(spec)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 60)


def relay_of(bench: Bench, spec: Any) -> processes.Identity:
    """The child of the gang's supervisor that is no learner's supervisor, in the machine's network."""
    return child_of(bench, spec, in_network=False)


def publisher_of(bench: Bench, spec: Any) -> processes.Identity:
    """The one in the gang's network."""
    return child_of(bench, spec, in_network=True)


def child_of(bench: Bench, spec: Any, *, in_network: bool) -> processes.Identity:
    gang, supervisor = bench.run(spec).gang(), until(lambda: bench.run(spec).supervisor(0))
    assert gang
    assert supervisor
    children = Path(f"/proc/{gang.pid}/task/{gang.pid}/children").read_text().split()
    ours = os.readlink("/proc/self/ns/net")
    [found] = [
        int(pid)
        for pid in children
        if int(pid) != supervisor.pid and (os.readlink(f"/proc/{pid}/ns/net") != ours) == in_network
    ]
    identity = processes.identity(found)
    assert identity
    return identity


# --- what a relay passes on ---


def inside(place: int, program: Callable[[], object]) -> int:
    """The exit code of a program, 0 for a true result, in a network that leads to a port of this machine."""
    reached = [netlink.Endpoint("127.0.0.1", place)]
    made = network.make(reached)
    relaying = network.start_relay(made, reached)
    try:
        pid = sandbox.fork(made.namespaces)
        if pid == 0:
            code = 1
            try:
                code = 0 if program() else 2
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.kill(relaying, signal.SIGKILL)
        os.waitpid(relaying, 0)
        for descriptor in (*made.namespaces, *made.streams, *made.datagrams):
            os.close(descriptor)


def test_both_directions_end_each_for_itself() -> None:
    """As of a client that sends all, says so, and then reads the answer: many MB of each."""
    size = 32 << 20

    def serve(connection: socket.socket) -> None:
        received = 0
        while piece := connection.recv(1 << 20):
            received += len(piece)
        connection.sendall(received.to_bytes(8, "big") + bytes(size))

    with serving(serve) as port:

        def program() -> bool:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(bytes(size))
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
            return answer == size.to_bytes(8, "big") + bytes(size)

        assert inside(port, program) == 0


def test_a_broken_connection_does_not_look_like_one_that_ended() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"half of it")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with serving(serve) as port:

        def program() -> bool:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.recv(100)
                connection.sendall(b"!")
                try:
                    return bool(connection.recv(100))
                except ConnectionResetError:
                    return True

        assert inside(port, program) == 0


def test_questions_to_name_servers_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the address of the name server: systemd's is on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            while (question := server.recvfrom(100))[0] != b"end":
                server.sendto(b"answer to " + question[0], question[1])

        place = netlink.Endpoint("127.0.0.1", server.getsockname()[1])
        monkeypatch.setattr(relay, "name_servers", lambda: [place])
        thread = threading.Thread(target=serve)
        thread.start()

        def program() -> bool:
            answers = []
            for address in ("127.0.0.53", machine_address(), "192.0.2.200"):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.settimeout(60)
                    client.connect((address, 53))
                    client.send(b"a question")
                    answers.append(client.recv(100))
            return answers == [b"answer to a question"] * 3

        try:
            assert inside(1, program) == 0
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.sendto(b"end", server.getsockname())
            thread.join()


def test_name_servers_are_those_of_resolv_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    monkeypatch.setattr(relay, "_RESOLVERS", file)
    assert relay.name_servers() == [("127.0.0.1", 53)]
    file.write_text("# nameserver 1.1.1.1\nsearch example.com\nnameserver 10.0.0.2\nnameserver ::1 # here\n")
    assert relay.name_servers() == [("10.0.0.2", 53), ("::1", 53)]


# --- machines ---


def test_an_ordinary_user_can_make_one() -> None:
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    namespaces = subprocess.run([*drop, "unshare", "--user", "true"], check=False, capture_output=True)
    folder = Path(tempfile.mkdtemp(prefix="weft-net-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        for package in (weft_core, weft_workers):
            source = Path(str(package.__file__)).parent
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        code = (
            f"import sys; sys.path.append({str(folder)!r}); from weft_workers.supervision import network as n; n.main()"
        )
        made = subprocess.run(
            [*drop, "/usr/bin/python3", "-I", "-S", "-B", "-c", code], text=True, check=False, capture_output=True
        )
    finally:
        shutil.rmtree(folder)
    assert (made.returncode == 0) == (namespaces.returncode == 0), made.stderr


def test_where_networks_are_forbidden_a_reason_is_found() -> None:
    forbid = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_net_namespaces; "$@"',
        "sh",
    ]
    tried = subprocess.run(
        [*forbid, *spawn.command("weft_workers.supervision.network")], capture_output=True, text=True, check=False
    )
    assert (tried.returncode, tried.stderr.strip()) == (1, "new namespaces: No space left on device")


def test_auto_shares_the_machines_network_and_says_so_and_strict_refuses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.engine.capacity().shared_network == ""
    monkeypatch.setattr(isolation, "network_obstacle", lambda: "new namespaces: No space left on device")
    with pytest.raises(LaunchRefused, match="isolation is strict: new namespaces: No space left on device"):
        bench.engine.launch(bench.spec(FOREVER, job="strict"))
    bench.engine = bench.new_engine(isolation="auto", host_mounts=[bench.folder])
    capacity = bench.engine.capacity()
    reason = "this machine does not allow it: new namespaces: No space left on device"
    assert (capacity.exposed, capacity.shared_network) == ("", reason)
    with serving(greeting) as port:
        assert asked(bench, ("127.0.0.1", port)) == ["hello"]
    assert bench.new_engine().capacity().shared_network == "", "with isolation none, this is not the point"
