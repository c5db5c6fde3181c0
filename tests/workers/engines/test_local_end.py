"""However a run ends, the engine reports its true end, and no process of it is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.workers.engines.bench import COUNT, FOREVER, Bench, kill, until

from weft_core import processes
from weft_core.engine import LearnerState
from weft_workers.supervision import files
from weft_workers.supervision.run import RunFolder

# A process that has done all it can to get away: a daemon with a session, a folder and an environment of its own.
DAEMON = """
import os, subprocess, sys, time
def escape():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir('/')
            program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
            os.execve(sys.executable, ["daemon", "-c", program, f"{OUT}/draft"], {})
        os._exit(0)
    while not os.path.exists(f"{OUT}/draft") or not os.path.getsize(f"{OUT}/draft"):
        time.sleep(0.01)
    os.rename(f"{OUT}/draft", f"{OUT}/daemon")
"""
# Says that it got SIGTERM, and stays.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda number, frame: open(f"{OUT}/told", "w").close())
open(f"{OUT}/ready", "w").close()
while True:
    time.sleep(0.05)
"""


def _daemon(bench: Bench) -> processes.Identity:
    who = processes.identity(int(bench.said("daemon").read_text()))
    assert who
    return who


def _gone(who: processes.Identity) -> bool:
    return processes.identity(who.pid) != who


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("raise SystemExit(3)", 3, "exit code 3"),
        ("os.kill(os.getpid(), 9)", -9, "killed by signal 9 (SIGKILL)"),
        ("os.kill(os.getpid(), 11)", -11, "killed by signal 11 (SIGSEGV)"),
        ("", 0, ""),
    ],
)
def test_an_agents_end_is_told_and_its_leftovers_are_ended(bench: Bench, how: str, code: int, reason: str) -> None:
    spec = bench.spec(f"{DAEMON}\nescape()\n{how}")
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.state, learner.exit_code, learner.reason) == (LearnerState.EXITED, code, reason)
    assert processes.identity(int((bench.out / "daemon").read_text())) is None


def test_a_killed_agent_takes_everything_with_it(bench: Bench) -> None:
    spec = bench.spec(f"{DAEMON}\nescape()\n{FOREVER}")
    bench.engine.launch(spec)
    daemon = _daemon(bench)
    kill(bench.agent_of(spec))
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason) == (-9, "killed by signal 9 (SIGKILL)")
    assert _gone(daemon)


def test_a_killed_learner_supervisor_takes_its_learner_with_it_and_no_other(bench: Bench) -> None:
    spec = bench.spec(f"{DAEMON}\nif os.environ['WEFT_RANK'] == '0': escape()\n{FOREVER}", learners=2)
    bench.engine.launch(spec)
    daemon = _daemon(bench)
    run, agent = bench.run(spec), bench.agent_of(spec, 1)
    kill(run.supervisor(0))
    seen = bench.wait(spec, lambda seen: seen.learners[0].state is LearnerState.EXITED)
    assert seen.learners[0].reason == "its process vanished"
    assert seen.learners[1].state is LearnerState.RUNNING
    until(lambda: _gone(daemon))
    assert not _gone(agent)


def test_a_killed_gang_supervisor_takes_all_learners_with_it(bench: Bench) -> None:
    spec = bench.spec(f"{DAEMON}\nif os.environ['WEFT_RANK'] == '0': escape()\n{FOREVER}", learners=2)
    bench.engine.launch(spec)
    daemon = _daemon(bench)
    bench.agent_of(spec, 1)
    kill(bench.run(spec).gang())
    learners = bench.ended(spec)
    assert {learner.reason for learner in learners.values()} == {"the supervisor of its run was killed"}
    assert _gone(daemon)
    until(lambda: not bench.processes())  # the supervisors end when they have said so


def test_when_all_supervisors_are_killed_at_once_the_next_look_cleans_up(bench: Bench) -> None:
    child = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\nopen(f'{OUT}/ready', 'w')\n"
    spec = bench.spec(child + FOREVER, learners=1)
    bench.engine.launch(spec)
    bench.said("ready")
    run, agent = bench.run(spec), bench.agent_of(spec)
    everyone = [run.gang(), run.supervisor(0)]
    for who in everyone:
        assert who
        os.kill(who.pid, signal.SIGSTOP)  # so that none can act when the other dies
    for who in everyone:
        kill(who)
    until(lambda: _gone(agent))  # the kernel kills it before anyone looks
    until(lambda: not run.alive())
    assert bench.processes(), "the agent's child is left"
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason, learner.interrupted) == (-9, "its process vanished", False)
    assert not bench.processes()
    bench.stop(spec)


def test_the_restart_of_a_container_is_an_interruption(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes all processes at once; the machine's boot is the same, its first process is another one."""
    spec = bench.spec(FOREVER, learners=1)
    bench.engine.launch(spec)
    bench.kill_everyone(spec)
    monkeypatch.setattr(processes, "machine_life", lambda: f"{processes.boot_id()} 12345")
    [learner] = bench.ended(spec).values()
    assert (learner.reason, learner.interrupted) == ("its machine or container was restarted", True)
    bench.stop(spec)


def test_a_reboot_is_seen(bench: Bench) -> None:
    """After a reboot no lock is held, and the pids in the files belong to other processes."""
    spec = bench.spec(FOREVER, learners=2)
    bench.engine.launch(spec)
    run = bench.run(spec)
    bench.agent_of(spec, 0)
    bench.agent_of(spec, 1)
    before = {path.name: path.read_bytes() for path in run.path.glob("*.json")}
    bench.stop(spec)
    run.path.mkdir(parents=True)
    bystander = subprocess.Popen(["sleep", "600"])
    for name, content in before.items():
        text = content.decode().replace(processes.boot_id(), "00000000-0000-0000-0000-000000000000")
        (run.path / name).write_text(text)
    who = [bystander.pid, 1, "00000000-0000-0000-0000-000000000000"]
    files.write_json(run.path / "gang.json", {"process": who})
    (run.path / "lock").touch()
    ended = bench.ended(spec).values()
    assert {(learner.reason, learner.interrupted) for learner in ended} == {
        ("its machine or container was restarted", True)
    }
    bench.stop(spec)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_pid_that_somebody_else_has_now_is_left_alone(bench: Bench) -> None:
    spec = bench.spec("open(f'{OUT}/ready', 'w')\n" + FOREVER)
    bench.engine.launch(spec)
    bench.said("ready")
    run = bench.run(spec)
    gang = run.gang()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        who = processes.identity(bystander.pid)
        assert who
        files.write_json(run.path / "gang.json", {"process": [who.pid, who.start - 1, who.boot]})
        run.request_stop(0, remove=True)
        assert bystander.poll() is None
        assert not processes.send(who._replace(start=who.start + 1), signal.SIGKILL)
        assert bystander.poll() is None
        bystander.kill()
    with contextlib.suppress(FileNotFoundError):  # they look by themselves now and then
        files.write_json(run.path / "gang.json", {"process": gang})
    bench.stop(spec)


# --- stop ---


def test_stop_terminates_and_forgets(bench: Bench) -> None:
    obedient = "import signal, sys\nsignal.signal(15, lambda *a: sys.exit(143))\nopen(f'{OUT}/ready', 'w')\n"
    spec = bench.spec(obedient + FOREVER)
    bench.engine.launch(spec)
    bench.said("ready")
    bench.engine.stop(spec.run_name, timedelta(seconds=600))
    until(lambda: bench.observe(spec) is None)
    until(lambda: not bench.processes())


def test_the_grace_is_kept_and_a_shorter_one_shortens_it(bench: Bench) -> None:
    spec = bench.spec(STUBBORN)
    bench.engine.launch(spec)
    bench.said("ready")
    bench.engine.stop(spec.run_name, timedelta(seconds=600))
    bench.said("told")
    bench.agent_of(spec)
    (bench.out / "told").unlink()
    bench.engine.stop(spec.run_name, timedelta(seconds=900))  # a longer one changes nothing
    stop = bench.run(spec).stop_request()
    assert stop
    assert stop.deadline < time.monotonic() + 600
    seen = bench.observe(spec)
    assert seen
    assert seen.learners[0].state is LearnerState.RUNNING, "it has its grace"
    bench.engine.stop(spec.run_name, timedelta(seconds=0.05))
    until(lambda: bench.observe(spec) is None)
    assert not (bench.out / "told").exists(), "it got SIGTERM only once"


def test_the_grace_runs_out_when_no_worker_is_there(bench: Bench) -> None:
    spec = bench.spec(f"{DAEMON}\nescape()\n{STUBBORN}")
    bench.engine.launch(spec)
    daemon = _daemon(bench)
    bench.said("ready")
    worker = os.fork()
    if worker == 0:
        bench.engine.stop(spec.run_name, timedelta(seconds=3))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)
    bench.said("told")
    until(lambda: _gone(daemon))
    until(lambda: not bench.run(spec).path.exists())


def test_stop_right_after_launch(bench: Bench) -> None:
    for number in range(5):
        spec = bench.spec(FOREVER, job=f"s{number}", learners=2)
        bench.engine.launch(spec)
        bench.stop(spec)


def test_stop_of_a_run_whose_launch_was_cut_short(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = bench.spec(FOREVER)
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.engine), "_start", lambda *_: None)
        bench.engine.launch(spec)
    assert bench.engine.observe()[spec.run_name].learners == {}
    bench.engine.stop(spec.run_name, timedelta(seconds=600))
    assert bench.observe(spec) is None


def test_a_finished_run_is_removed_even_if_its_files_resist(bench: Bench) -> None:
    spec = bench.spec("import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nos.chmod('a/b', 0)")
    bench.engine.launch(spec)
    bench.ended(spec)
    bench.engine.stop(spec.run_name, timedelta(0))
    until(lambda: bench.observe(spec) is None)
    until(lambda: [path.name for path in (bench.home / "runs").iterdir()] == [".lock"])


# --- interrupt ---


def _interrupt(bench: Bench, grace: float) -> str:
    command = [sys.executable, "-m", "weft_workers.engines.local", "interrupt", "--home", str(bench.home)]
    done = subprocess.run([*command, "--grace", str(grace)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_interrupt_takes_back_what_lives_and_says_so_until_it_is_stopped(bench: Bench) -> None:
    finished = bench.spec("raise SystemExit(2)", job="finished")
    first_ends = "import os\nif os.environ['WEFT_RANK'] == '0': raise SystemExit(0)\n"
    mixed = bench.spec(first_ends + FOREVER, job="mixed", learners=2)
    stubborn = bench.spec(STUBBORN, job="stubborn")
    for spec in (finished, mixed):
        bench.engine.launch(spec)
    bench.ended(finished)
    bench.wait(mixed, lambda seen: seen.learners[0].state is LearnerState.EXITED)
    assert _interrupt(bench, 60) == "1 runs interrupted"
    assert not bench.processes()
    bench.engine.launch(stubborn)
    bench.said("ready")
    assert _interrupt(bench, 0.2) == "1 runs interrupted"
    assert not bench.processes()
    seen = bench.new_engine().observe()
    told = {
        (name, rank): (learner.state, learner.exit_code, learner.interrupted)
        for name, run in seen.items()
        for rank, learner in run.learners.items()
    }
    assert told == {
        (finished.run_name, 0): (LearnerState.EXITED, 2, False),
        (mixed.run_name, 0): (LearnerState.EXITED, 0, False),
        (mixed.run_name, 1): (LearnerState.EXITED, -15, True),
        (stubborn.run_name, 0): (LearnerState.EXITED, -9, True),
    }
    for spec in (finished, mixed, stubborn):
        bench.engine.stop(spec.run_name, timedelta(0))
    assert bench.engine.observe() == {}
    assert _interrupt(bench, 0.2) == "0 runs interrupted"


@pytest.mark.parametrize("slow", [False, True], ids=["", "the gang's supervisor is slow"])
def test_a_shutdown_of_the_machine_interrupts(bench: Bench, slow: bool) -> None:
    """It sends SIGTERM to every process there is."""
    spec = bench.spec("open(f'{OUT}/ready', 'w')\n" + FOREVER)
    bench.engine.launch(spec)
    bench.said("ready")
    run = bench.run(spec)
    gang, supervisor = run.gang(), run.supervisor(0)
    assert gang
    assert supervisor
    if slow:
        processes.send(gang, signal.SIGSTOP)
    for who in (gang, supervisor, bench.agent_of(spec)):
        processes.send(who, signal.SIGTERM)
    [learner] = bench.ended(spec).values()
    processes.send(gang, signal.SIGCONT)
    assert learner.interrupted


def test_an_interrupted_run_is_not_started_again(bench: Bench) -> None:
    spec = bench.spec(COUNT)
    bench.engine.launch(spec)
    until(bench.said("started-0").read_text)
    _interrupt(bench, 0)
    bench.engine.launch(spec)
    assert bench.ended(spec)[0].interrupted
    assert (bench.out / "started-0").read_text() == "x"


def test_a_run_that_its_supervisors_have_just_removed_is_asked_nothing(tmp_path: Path) -> None:
    """They remove a run that was to be stopped as soon as it has ended; a second request may come at that moment."""
    gone = RunFolder(tmp_path / "gone")
    gone.request_stop(0, remove=True)
    gone.request_interrupt(0)
    assert list(tmp_path.iterdir()) == []
