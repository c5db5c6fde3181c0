"""A learner's sandbox: what its agent sees, how it ends, and machines that allow none.

tests/e2e/test_isolation.py attacks from inside a job."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.workers.engines.bench import FOREVER, Bench, kill, until

from weft_core import processes
from weft_core.engine import LaunchRefused, LearnerState
from weft_workers.engines.local import isolation
from weft_workers.supervision import sandbox

# The agent lets these signals in when it is ready for them, and so do these scripts.
_READY = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])"
_ABSTRACT = "\0weft-test-{}"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if obstacle := isolation.obstacle():
        pytest.skip(f"NOT RUN: this machine allows no sandbox: {obstacle}")
    bench = Bench(tmp_path)
    bench.engine = bench.new_engine(isolation="auto", host_mounts=[tmp_path])
    yield bench
    bench.close()


def test_a_learner_has_processes_and_folders_of_its_own(bench: Bench) -> None:
    script = """
import json, os, signal
facts = {"pid": os.getpid(), "pids": [int(name) for name in os.listdir("/proc") if name.isdecimal()],
    "cwd": os.getcwd(),
    "tmp": [name for name in os.listdir("/tmp") if not name.startswith("pytest")],
    "user": os.geteuid(), "hidden": os.environ["WEFT_SANDBOX"], "cache": os.environ["WEFT_CACHE_DIR"],
    "etc": os.path.exists("/etc/shadow"), "resolv": os.path.exists("/etc/resolv.conf"),
    "spaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid", "ipc")},
    "status": dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())}
open(f"/tmp/left", "w").close()
open(f"{OUT}/facts", "w").write(json.dumps(facts))
"""
    spec = bench.spec(script)
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason) == (0, "")
    facts = json.loads((bench.out / "facts").read_text())
    run = bench.run(spec)
    assert (facts["pid"], facts["pids"]) == (1, [1])
    assert facts["cwd"] == str(run.learner(0))
    assert facts["user"] == os.geteuid()
    # An environment or a checkout in /tmp is seen, as the program needs it.
    needed = {Path(place).parts[2] for place in (sys.prefix, __file__) if Path(place).is_relative_to("/tmp")}
    assert set(facts["tmp"]) <= needed
    assert (facts["etc"], facts["resolv"]) == (False, Path("/etc/resolv.conf").exists())
    assert facts["hidden"].split(":") == [str(bench.home)]
    assert facts["cache"] == str(bench.home / "cache" / spec.project_id)
    assert not {space for name, space in facts["spaces"].items() if os.readlink(f"/proc/self/ns/{name}") == space}
    assert (facts["status"]["NoNewPrivs"].strip(), facts["status"]["Seccomp"].strip()) == ("1", "2"), "filtered calls"
    assert not Path("/tmp/left").exists()
    assert Path(run.path, "learner-0.tmp", "left").exists(), "its /tmp is a part of the run, and goes with it"


@pytest.mark.parametrize("ready", [True, False])
def test_a_stop_reaches_the_agent_also_before_it_is_ready(bench: Bench, ready: bool) -> None:
    wait = "" if ready else "\nwhile not os.path.exists(f'{OUT}/go'): time.sleep(0.01)"
    script = f"""
import os, signal, time
open(f"{{OUT}}/started", "w").close(){wait}
signal.signal(signal.SIGTERM, lambda *_: (open(f"{{OUT}}/told", "w").close(), os._exit(7)))
{_READY}
open(f"{{OUT}}/ready", "w").close()
time.sleep(600)
"""
    spec = bench.spec(script)
    bench.engine.launch(spec)
    bench.said("ready" if ready else "started")
    bench.agent_of(spec)
    bench.engine.stop(spec.run_name, timedelta(seconds=600))
    if not ready:
        until(lambda: bench.run(spec).stop_request())
        (bench.out / "go").touch()
    bench.said("told")
    until(lambda: bench.observe(spec) is None)


def test_nothing_outlives_the_supervisor_of_a_learner(bench: Bench) -> None:
    child = "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '600'])\nopen(f'{OUT}/ready', 'w')\n"
    spec = bench.spec(child + FOREVER)
    bench.engine.launch(spec)
    bench.said("ready")
    agent = bench.agent_of(spec)
    kill(bench.run(spec).supervisor(0))
    seen = bench.wait(spec, lambda seen: seen.learners[0].state is LearnerState.EXITED)
    assert seen.learners[0].reason == "its process vanished"
    until(lambda: processes.identity(agent.pid) != agent)
    until(lambda: not bench.processes())


def test_the_kernel_tells_how_an_agent_died(bench: Bench) -> None:
    spec = bench.spec(FOREVER)
    bench.engine.launch(spec)
    processes.send(bench.agent_of(spec), signal.SIGKILL)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason) == (-9, "killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize("shared", [False, True])
def test_abstract_sockets_of_the_machine_are_out_of_reach(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Abstract sockets belong to a network. On the machine's own, Landlock (from version 6 on) blocks them."""
    name = _ABSTRACT.format(os.getpid())
    script = f"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect({name!r})
    found = "connected"
except OSError as error:
    found = type(error).__name__
open(f"{{OUT}}/found", "w").write(found)
"""
    version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if shared:
        monkeypatch.setattr(isolation, "network_obstacle", lambda: "none of it today")
    elif obstacle := isolation.network_obstacle():
        pytest.skip(f"NOT RUN: this machine allows no network of its own: {obstacle}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        spec = bench.spec(script)
        bench.engine.launch(spec)
        bench.ended(spec)
    on_machine = "PermissionError" if version >= 6 else "connected"
    assert (bench.out / "found").read_text() == (on_machine if shared else "ConnectionRefusedError")


def test_an_ordinary_user_can_make_one() -> None:
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    namespaces = subprocess.run([*drop, "unshare", "--user", "true"], check=False, capture_output=True)
    code = Path(sandbox.__file__).read_text()
    made = subprocess.run(
        [*drop, "/usr/bin/python3", "-I", "-S", "-"], input=code, text=True, check=False, capture_output=True
    )
    assert (made.returncode == 0) == (namespaces.returncode == 0), made.stderr


def test_where_namespaces_are_forbidden_a_reason_is_found() -> None:
    forbid = Path(__file__).parents[2] / "embedded/forbid_namespaces.py"
    command = [sys.executable, str(forbid), sys.executable, "-I", "-S", sandbox.__file__]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (tried.returncode, tried.stderr.strip()) == (1, "new namespaces: Operation not permitted")


def test_auto_goes_without_and_says_so_and_strict_refuses(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.engine.capacity().exposed == ""
    monkeypatch.setattr(isolation, "obstacle", lambda: "new namespaces: Operation not permitted")
    bench.engine = bench.new_engine(isolation="strict")
    with pytest.raises(LaunchRefused, match="isolation is strict: new namespaces: Operation not permitted"):
        bench.engine.launch(bench.spec(FOREVER, job="strict"))
    bench.engine = bench.new_engine(isolation="auto")
    reason = "this machine does not allow it: new namespaces: Operation not permitted"
    assert bench.engine.capacity().exposed == reason
    spec = bench.spec("import os\nopen(f'{OUT}/pid', 'w').write(str(os.getpid()))", job="auto")
    bench.engine.launch(spec)
    bench.ended(spec)
    assert int((bench.out / "pid").read_text()) > 1
    assert bench.new_engine().capacity().exposed == "its setting isolation is none"
