"""Tunnels with real agents, a real API and the real client: their data, and the right to open them."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from sqlalchemy import update
from tests.api.conftest import Api, Attempted, Person
from tests.api.test_process import Served
from tests.api.test_real_agent import eventually, start
from tests.relay import Relay

from weft import Client, inside
from weft.agents.tools import WriteTools
from weft.errors import Conflict, NotFound, PermissionDenied, TransferError, TunnelBroken, WeftError
from weft.resources.profiles import Profiles
from weft.ssh import host_key
from weft.transport.tunnel import Frame, Tunnel
from weft_api.access.auth import revoke_all
from weft_core.settings import Settings
from weft_core.store.models import Learner, Member, Project
from weft_core.words import size

pytestmark = pytest.mark.slow

WAITS = "name: hello\nframework: {name: python, command: until test -e stop; do sleep 0.1; done}\nenv: {COLOUR: blue}\n"


class Running:
    """A job with one learner, whose program runs until ``end``."""

    def __init__(self, api: Api, owner: Person, folder: Path) -> None:
        self.api = api
        self.owner = owner
        self.job = owner.submit(WAITS)["id"]
        self.attempt: Attempted = api.attempt(self.job)
        self.folder = folder
        self.agent = start(api, self.attempt, folder)
        eventually(self._beats)

    def _beats(self) -> bool:
        with self.api.context.database.transaction() as session:
            return session.get_one(Learner, (self.attempt.id, 0)).idle_since is not None

    def open(self, person: Person | None = None, url: str | None = None) -> inside.Open:
        client = Client(url or self.api.url, (person or self.owner).token)

        def tunnel(kind: str, **opening: Any) -> Tunnel:
            return client.jobs.tunnel(self.job, kind, **opening)

        return tunnel

    def run(self, *command: str, stdin: bytes = b"", url: str | None = None) -> tuple[int, bytes, bytes]:
        """A command's exit code and its two outputs."""
        with self.open(url=url)("exec", command=list(command)) as tunnel:
            threading.Thread(target=lambda: (tunnel.write(stdin), tunnel.tell(Frame.DONE)), daemon=True).start()
            code, output, errors = finished(tunnel)
        return code, output, errors

    def end(self) -> None:
        self.run("touch", "stop")
        assert self.agent.wait(600) == 0

    def kill(self) -> None:
        self.agent.kill()
        self.agent.wait()


def finished(tunnel: Tunnel) -> tuple[int, bytes, bytes]:
    told = {Frame.OUTPUT: b"", Frame.ERRORS: b"", Frame.DONE: b""}
    for frame, data in tunnel:
        told[frame] += data
    tunnel.check()
    return int(tunnel.end["exit_code"]), told[Frame.OUTPUT], told[Frame.ERRORS]


@pytest.fixture(scope="module")
def running(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(api, api.person(), tmp_path_factory.mktemp("learner") / "0")
    yield made
    made.kill()


def test_a_command_has_the_programs_place(running: Running) -> None:
    script = 'echo "$COLOUR $LEARNER_ID $PWD $(id -u)"; echo trouble >&2; cat; exit 7'
    code, output, errors = running.run("sh", "-c", script, stdin=b"from here")
    code_dir = running.folder / "code"
    place = output.decode().split()[2]
    assert (code, errors) == (7, b"trouble\n")
    assert output == f"blue 1 {place} {os.getuid()}\nfrom here".encode(), code_dir
    assert "WEFT_ATTEMPT_TOKEN" not in running.run("env")[1].decode()


def test_how_commands_end(running: Running) -> None:
    assert running.run("sh", "-c", "kill -9 $$")[0] == 128 + 9
    with pytest.raises(TunnelBroken, match="no-such-thing: there is no such command"):
        running.run("no-such-thing")
    assert inside.output_of(running.open(), ["echo", "shown"]) == "shown\n"
    with pytest.raises(WeftError, match=r"^no such thing$"):
        inside.output_of(running.open(), ["sh", "-c", "echo no such thing >&2; exit 3"])
    # A process that it leaves in the background holds its output open; the tunnel does not wait for that process.
    assert running.run("sh", "-c", "sleep 1000 & echo done")[:2] == (0, b"done\n")
    running.run("pkill", "-f", "sleep 1000")


def test_much_data_in_both_directions(running: Running) -> None:
    data = os.urandom(9 << 20)
    assert running.run("cat", stdin=data) == (0, data, b"")


def test_whoever_reads_slowly_holds_nothing_up(running: Running) -> None:
    """The window is full, and everything else comes through."""
    with running.open()("exec", command=["cat", "/dev/zero"]) as slow:
        frames = iter(slow)
        next(frames)
        assert running.run("echo", "quick")[1] == b"quick\n"
        assert next(frames)[0] is Frame.OUTPUT


def test_a_shell_has_a_terminal(running: Running) -> None:
    terminal = {"rows": 33, "columns": 111, "term": "xterm-256color"}
    with running.open()("shell", command=None, terminal=terminal) as tunnel:
        seen = bytearray()
        frames = iter(tunnel)

        def until(text: str) -> None:
            while text.encode() not in seen:
                seen.extend(next(frames)[1])

        # The quotes keep the echo of the typed line from looking like the answer.
        tunnel.write(b'PS1="rea"dy:; echo "size" $(stty size) "$TERM"\n')
        until("size 33 111 xterm-256color")
        tunnel.tell(Frame.RESIZE, [40, 100])
        tunnel.write(b'echo "size" $(stty size)\n')
        until("size 40 100")
        # sed answers, so it has the terminal. A shell script can't take its place: dash loses a Ctrl-C before a fork.
        tunnel.write(b"sed -u s/ping/pong/\nping\n")
        until("pong\r\n")
        seen.clear()
        tunnel.write(b"\x03")
        until("ready:")
        tunnel.write(b"exit 3\n")
        assert finished(tunnel)[0] == 3


def test_ctrl_c_without_a_terminal(running: Running) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    with running.open()("exec", command=["sh", "-c", script]) as tunnel:
        assert next(iter(tunnel))[1] == b"ready\n"
        tunnel.tell(Frame.SIGNAL, "INT")
        assert finished(tunnel)[:2] == (5, b"caught\n")


def test_a_command_ends_with_its_client(running: Running) -> None:
    tunnel = running.open()("exec", command=["sh", "-c", "echo $$; exec sleep 1000"])
    pid = int(next(iter(tunnel))[1])
    tunnel.close()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_files_there_and_back(running: Running, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "data").write_bytes(os.urandom(3 << 20))
    (source / "run.sh").write_text("#!/bin/sh\necho hello\n")
    (source / "run.sh").chmod(0o755)
    (source / "latest").symlink_to("deep/data")
    said: list[str] = []
    assert inside.send(running.open(), source, ".", said.append) == 3
    assert running.run("./source/run.sh")[1] == b"hello\n"
    back = tmp_path / "back"
    assert inside.fetch(running.open(), "$MODEL_DIR/source", back, said.append) == 3
    assert (back / "latest").readlink() == Path("deep/data")
    assert (back / "latest").read_bytes() == (source / "deep" / "data").read_bytes()
    assert os.access(back / "run.sh", os.X_OK)
    assert inside.fetch(running.open(), "source/run.sh", back, said.append) == 1
    assert inside.fetch(running.open(), "$MODEL_DIR/source/", tmp_path / "back", said.append) == 3
    assert (tmp_path / "back" / "source" / "run.sh").exists()
    assert inside.send(running.open(), source / "run.sh", "other.sh", said.append) == 1
    assert running.run("./other.sh")[1] == b"hello\n"
    assert said == []
    with pytest.raises(TransferError, match="there is no nothing in this learner"):
        inside.fetch(running.open(), "nothing", tmp_path / "new", said.append)
    with pytest.raises(TransferError, match=r"there is no folder .*nowhere in this learner"):
        inside.send(running.open(), source, "nowhere/else", said.append)


def test_tensorboards_files_of_a_running_learner(running: Running) -> None:
    """Each once, with its name among the results, and nothing else."""
    script = """
    mkdir -p runs/a .hidden "$RESULT_DIR/runs/a" "$LOG_DIR"
    printf old > runs/a/events.out.tfevents.1; printf new > "$RESULT_DIR/runs/a/events.out.tfevents.1"
    printf log > "$LOG_DIR/x.tfevents.2"; printf no > notes.txt; printf no > .hidden/events.out.tfevents.3
    ln -s /etc/passwd runs/passwd.tfevents
    """
    assert running.run("sh", "-c", script)[0] == 0
    with running.open()("events") as tunnel:
        code, output, errors = finished(tunnel)
    assert (code, errors) == (0, b"")
    with tarfile.open(fileobj=io.BytesIO(output)) as archive:
        files = {entry.name: entry for entry in archive if entry.isreg()}
        found = {name: archive.extractfile(entry) for name, entry in files.items()}
        contents = {name: file.read() for name, file in found.items() if file is not None}
    assert contents == {"runs/a/events.out.tfevents.1": b"new", "x.tfevents.2": b"log"}


def test_a_port_of_the_learner(running: Running) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True:\n c, _ = s.accept()\n while data := c.recv(65536): c.sendall(data.upper())\n c.close()\n"
    )
    with running.open()("exec", command=[sys.executable, "-c", server]) as serving:
        port = int(next(iter(serving))[1])
        said: list[str] = []
        forwarder = inside.Forwarder(running.open(), 0, port, said.append)
        threading.Thread(target=forwarder.serve, daemon=True).start()
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", forwarder.port)) as client:
                client.sendall(b"hello" * 100_000)
                client.shutdown(socket.SHUT_WR)
                assert b"".join(iter(lambda: client.recv(65536), b"")) == b"HELLO" * 100_000
        assert said == []
        nobody = inside.Forwarder(running.open(), 0, 1, said.append)
        threading.Thread(target=nobody.serve, daemon=True).start()
        with socket.create_connection(("127.0.0.1", nobody.port)) as client:
            assert client.recv(1) == b""
        eventually(lambda: bool(said))
        assert "nothing answers at port 1 of this learner" in said[0]


def test_the_commands(api: Api, running: Running, tmp_path: Path) -> None:
    viewer = api.person("viewer", running.owner.project_id)

    def weft(*words: str, person: Person = running.owner, stdin: str = "") -> tuple[int, str, str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WEFT_URL": api.url}
        done = subprocess.run(
            [sys.executable, "-c", "from weft.main import run; run()", *words],
            env=environment | {"WEFT_TOKEN": person.token},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    script = "cat; echo trouble >&2; exit 7"
    assert weft("exec", running.job, "--", "sh", "-c", script, stdin="from here") == (7, "from here", "trouble\n")
    check = f"/api/v1/jobs/{running.job}/tunnels?learner="
    assert running.owner.http.get(f"{check}1").status_code == 204
    assert running.owner.http.get(f"{check}2").json()["detail"] == "no learner '2' in this project"
    assert "needs the role editor" in viewer.http.get(f"{check}1").json()["detail"]
    code, output, complaint = weft("exec", running.job, "--", "true", person=viewer)
    assert (code, output) == (255, "")
    assert "weft: error: this needs the role editor" in complaint
    assert weft("shell", running.job, stdin="echo $COLOUR; exit 4\n")[:2] == (4, "blue\n")
    (tmp_path / "here").write_text("hello")
    assert weft("cp", str(tmp_path / "here"), f"{running.job}:$MODEL_DIR")[0] == 0
    assert weft("cp", f"{running.job}:here", str(tmp_path / "there"))[0] == 0
    assert (tmp_path / "there").read_text() == "hello"
    assert weft("cp", "here", "there")[0] == 2
    project = running.owner.project
    assert weft("projects", "tunnels", project, "--allow")[2] == f"editors may go into the running jobs of {project}\n"


def test_ssh(api: Api, running: Running, tmp_path: Path) -> None:
    proxy = [sys.executable, "-c", "from weft.main import run; run()", "ssh-proxy", f"1.{running.job}.weft"]
    environment = {"WEFT_URL": api.url, "WEFT_TOKEN": running.owner.token}
    key = host_key(tmp_path / "ssh")
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    server += "c, _ = s.accept(); c.sendall(c.recv(9).upper())"

    async def use() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**environment, "WEFT_PROFILE_FILE": str(tmp_path / "config.toml")}.items():
                patch.setenv(name, value)
            connection = await asyncssh.connect(
                "job.weft", proxy_command=proxy, known_hosts=([key.convert_to_public()], [], []), username="anybody"
            )
        async with connection:
            done = await connection.run("echo $COLOUR; cat; echo trouble >&2; exit 7", input="from here")
            assert (done.stdout, done.stderr, done.exit_status) == ("blue\nfrom here", "trouble\n", 7)
            shell = await connection.create_process(term_type="xterm", term_size=(90, 30))
            shell.change_terminal_size(100, 40)
            shell.stdin.write("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.1; done; exit 3\n")
            assert (await shell.wait()).exit_status == 3
            serving = await connection.create_process(shlex.join([sys.executable, "-c", server]))
            reader, writer = await connection.open_connection("127.0.0.1", int(await serving.stdout.readline()))
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"HELLO"
            with pytest.raises(asyncssh.ChannelOpenError, match="only ports of the learner itself"):
                await connection.open_connection("192.0.2.1", 80)
            with pytest.raises(asyncssh.Error):
                await connection.start_sftp_client()

    asyncio.run(use())


def test_a_profile_is_stored_as_files_of_the_job(
    api: Api, running: Running, bob: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(api.url, running.owner.token)
    profiles = client.jobs.profiles
    with pytest.raises(WeftError, match="no Python runs in this learner"):
        profiles.record(running.job)
    with pytest.raises(WeftError, match="steps: expected a number from 1 to 100, not '0'"):
        profiles.record(running.job, steps=0)
    code = "import time\ndef waits_for_data(): time.sleep(1000)\nopen('ready', 'w').close()\nwaits_for_data()"
    running.run("sh", "-c", f"{shlex.join([sys.executable, '-c', code])} >/dev/null 2>&1 & echo $! > pid")
    running.run("sh", "-c", "until test -e ready; do sleep 0.1; done")
    said: list[str] = []
    made = client.job(running.job).profile(seconds=1, say=said.append)
    running.run("sh", "-c", "kill $(cat pid)")
    assert said == ["learner 1: py-spy records 1 process for 1 s"]
    assert made.missing == ()
    assert [(file.learner, file.process, file.kind) for file in made.files] == [(1, "process-1", "stacks")]
    assert profiles.list(running.job)[0].id == made.id
    [file] = made.files
    stacks = profiles.download(running.job, file, tmp_path / "stacks").read_text()
    assert len(stacks.encode()) == file.size
    assert profiles.hottest(running.job, file)[0][0] == "waits_for_data (<string>:2)"
    with monkeypatch.context() as patch:  # an agent gets the same files in words; it would record for 30 s
        patch.setattr(Profiles, "record", lambda *_, **options: made if options["learners"] == [1] else None)
        told_agent = WriteTools(client, tmp_path).profile(running.job, steps=3)
    assert "100% of the main thread's time in waits_for_data (<string>:2)" in told_agent
    assert f"weft profile {running.job} --get {made.id}" in told_agent
    told = [event.message for event in client.jobs.events(running.job) if event.kind == "profile"]
    assert f"profile {made.id} of learner 1: py-spy records 1 process for 1 s" in told
    assert f"profile {made.id} of learner 1: stored 1 file ({size(file.size)})" in told
    assert any(message.endswith("of learner 1: failed: no Python runs in this learner") for message in told)
    viewer = api.person("viewer", running.owner.project_id)
    assert Client(api.url, viewer.token).jobs.profiles.list(running.job) == profiles.list(running.job)
    with pytest.raises(PermissionDenied):
        Client(api.url, viewer.token).jobs.profiles.record(running.job)
    for path in ("profiles", f"profiles/{file.path}"):
        assert bob.http.get(f"/api/v1/jobs/{running.job}/{path}").status_code == 404
    for path in ("profiles/other", f"profiles/{made.id}/learner-1/rank-9.stacks.txt"):
        assert running.owner.http.get(f"/api/v1/jobs/{running.job}/{path}").status_code == 404


# --- who comes in ----------------------------------------------------------------------------------------------------


def test_editors_of_the_project_come_in(api: Api, running: Running, bob: Person) -> None:
    project = running.owner.project_id
    command = ["true"]
    assert finished(running.open(api.person("editor", project))("exec", command=command))[0] == 0
    with pytest.raises(PermissionDenied, match="this needs the role editor"):
        running.open(api.person("viewer", project))("exec", command=command)
    with pytest.raises(NotFound):
        running.open(bob)("exec", command=command)
    with pytest.raises(NotFound, match="no learner '2'"):
        running.open()("exec", command=command, learner=2)
    queued = running.owner.submit(WAITS)["id"]
    with pytest.raises(Conflict, match="the job is QUEUED: no learner of it runs"):
        Client(api.url, running.owner.token).jobs.tunnel(queued, "exec", command=command)


def test_an_agent_comes_for_its_own_tunnels_only(api: Api, running: Running) -> None:
    ended = api.attempt(running.owner.submit(WAITS)["id"])
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = api.client(ended.token).get("/api/v1/learner/tunnels/other?rank=0", headers=upgrade)
    assert answer.status_code == 404


def test_each_tunnel_is_in_the_audit_trail(api: Api, running: Running, root: Person) -> None:
    viewer = api.person("viewer", running.owner.project_id)
    with pytest.raises(PermissionDenied):
        running.open(viewer)("shell", command=None)
    running.run("true")
    records = root.http.get("/api/v1/audit", params={"object": f"job:{running.job}"}).json()["records"]
    told = {(record["user"], record["action"], record["status"]) for record in records}
    assert {(running.owner.name, "tunnels.exec", 101), (viewer.name, "tunnels.shell", 403)} <= told


def test_a_project_lets_nobody_in(api: Api, ann: Person, tmp_path: Path) -> None:
    running = Running(api, ann, tmp_path / "learner")
    try:
        tunnel = running.open()("exec", command=["sleep", "1000"])
        viewer, editor = api.person("viewer", ann.project_id), api.person("editor", ann.project_id)
        path = f"/api/v1/projects/{ann.project}/tunnels"
        assert viewer.http.get(path).json() == {"allowed": True}
        assert editor.http.put(path, json={"allowed": False}).status_code == 403
        assert ann.http.put(path, json={"allowed": False}).json() == {"allowed": False}
        with pytest.raises(TunnelBroken, match="you no longer have the right to enter this project's jobs"):
            finished(tunnel)  # within seconds
        with pytest.raises(PermissionDenied, match="lets nobody into its running jobs"):
            running.open()("exec", command=["true"])
        with api.context.database.transaction() as session:
            session.execute(update(Project).where(Project.id == ann.project_id).values(tunnels=True))
        tunnel = running.open(editor)("exec", command=["sleep", "1000"])
        with api.context.database.transaction() as session:
            session.execute(update(Member).where(Member.user_id == editor.user_id).values(role="viewer"))
        with pytest.raises(TunnelBroken, match="no longer"):
            finished(tunnel)
        leaver = api.person("editor", ann.project_id)
        tunnel = running.open(leaver)("exec", command=["sleep", "1000"])
        with api.context.database.transaction() as session:
            revoke_all(session, leaver.user_id)
        with pytest.raises(TunnelBroken, match="sign in again"):
            finished(tunnel)
    finally:
        running.kill()


# --- ends and failures -----------------------------------------------------------------------------------------------


def test_the_program_ends_while_a_shell_is_open(api: Api, ann: Person, tmp_path: Path) -> None:
    running = Running(api, ann, tmp_path / "learner")
    with running.open()("shell", command=None, terminal={"rows": 24, "columns": 80}) as tunnel:
        tunnel.write(b"echo pid=$$; sleep 1001 & nohup sleep 1002 & touch stop\n")
        with pytest.raises(TunnelBroken, match="the program of this learner has ended"):
            finished(tunnel)
    assert running.agent.wait(600) == 0
    left = subprocess.run(["pgrep", "-f", "sleep 100[12]"], capture_output=True, check=False)
    assert left.stdout == b""


def test_several_api_processes(api: Api, api_settings: Settings, ann: Person, tmp_path: Path) -> None:
    """The user's connection reaches one process, and the agent's another."""
    other = Api(api_settings)
    try:
        running = Running(api, ann, tmp_path / "learner")
        try:
            data = os.urandom(5 << 20)
            assert running.run("cat", stdin=data, url=other.url) == (0, data, b"")
            assert running.run("sh", "-c", "exit 4", url=other.url)[0] == 4
        finally:
            running.kill()
    finally:
        other.stop()


def test_a_tunnel_goes_on_when_its_connection_breaks(running: Running) -> None:
    """Without a gap, and without a byte twice."""
    relay = Relay(running.api.url)
    data = os.urandom(9 << 20)
    breaks: list[str] = []
    try:
        with running.open(url=relay.url)("exec", command=["sh", "-c", "cat; echo end >&2; exit 6"]) as tunnel:
            tunnel.watch = lambda reason: breaks.append(reason or "back")
            threading.Thread(target=lambda: (tunnel.write(data), tunnel.tell(Frame.DONE)), daemon=True).start()
            output, errors = bytearray(), bytearray()
            for frame, piece in tunnel:
                output += piece if frame is Frame.OUTPUT else b""
                errors += piece if frame is Frame.ERRORS else b""
                if len(output) >= (1 + len(breaks)) << 20 and len(breaks) < 6:
                    relay.cut()
            assert (tunnel.end, bytes(errors)) == ({"exit_code": 6}, b"end\n")
            assert bytes(output) == data
        assert breaks == ["the connection to the server was lost", "back"] * 3
    finally:
        relay.close()


def test_a_process_of_the_api_dies(api: Api, running: Running, api_settings: Settings, tmp_path: Path) -> None:
    """A shell goes on in another one."""
    served = Served(api_settings, tmp_path)
    relay = Relay(f"http://{served.address}")
    try:
        terminal = {"rows": 24, "columns": 80, "term": "xterm"}
        with running.open(url=relay.url)("shell", command=None, terminal=terminal) as tunnel:
            tunnel.write(b"KEPT=there; echo rea''dy\n")
            seen, frames = b"", iter(tunnel)
            while b"ready" not in seen:
                seen += next(frames)[1]
            relay.lead_to(api.url)
            served.process.kill()
            tunnel.write(b'echo "still $KEPT"; exit 4\n')
            code, output, _ = finished(tunnel)
            assert (code, b"still there" in output) == (4, True)
    finally:
        relay.close()
        served.process.kill()
        served.process.wait()


def test_only_its_client_resumes_a_tunnel(running: Running) -> None:
    with running.open()("exec", command=["sh", "-c", "echo $$; exec sleep 1000"]) as tunnel:
        pid = int(next(iter(tunnel))[1])
        for kind, opening in (
            ("exec", {"resume": "somebody-elses-key", "received": 0, "taken": 0}),
            ("shell", {"resume": tunnel._key, "received": 0, "taken": 0}),  # recorded as another kind
            ("exec", {"resume": tunnel._key, "received": 1 << 40, "taken": 0}),
        ):
            with running.open()(kind, **opening) as other, pytest.raises(TunnelBroken, match="the tunnel is over"):
                finished(other)
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_the_agent_dies(api: Api, ann: Person, tmp_path: Path) -> None:
    running = Running(api, ann, tmp_path / "learner")
    with running.open()("exec", command=["sh", "-c", "echo there; exec sleep 1000"]) as tunnel:
        next(iter(tunnel))
        tunnel.resume_seconds = 1
        running.agent.send_signal(signal.SIGKILL)
        with pytest.raises(TunnelBroken, match="the learner has gone"):
            finished(tunnel)
    running.agent.wait()
