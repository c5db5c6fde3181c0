"""All learners start, each once, with their own environment and resources and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.workers.engines.bench import COUNT, FOREVER, Bench, until

from weft_core.engine import EngineUnreachable, LaunchRefused, LearnerState
from weft_core.launch import LaunchSpec
from weft_core.settings import Settings
from weft_workers import engines, environments
from weft_workers.engines.local import LocalEngine

if TYPE_CHECKING:
    from _typeshed import TraceFunction

AGENT = Path(__file__).parents[3] / "trainer_images" / "runtime" / "weft_trainer"


def test_a_run_from_start_to_end(bench: Bench) -> None:
    spec = bench.spec("import os\nwhile not os.path.exists(f'{OUT}/go'): __import__('time').sleep(0.01)", learners=2)
    assert bench.engine.observe() == {}
    bench.engine.launch(spec)
    seen = bench.wait(spec, lambda seen: seen.learners)
    assert set(seen.learners) == {0, 1}
    assert not seen.gone
    bench.wait(spec, lambda seen: {learner.state for learner in seen.learners.values()} == {LearnerState.RUNNING})
    (bench.out / "go").touch()
    learners = bench.ended(spec)
    assert [(learner.exit_code, learner.reason, learner.oom, learner.interrupted) for learner in learners.values()] == [
        (0, "", False, False)
    ] * 2
    [node] = bench.engine.capacity().nodes
    assert {learner.node for learner in [*seen.learners.values(), *learners.values()]} == {node.name}
    bench.engine.launch(spec)  # adopts what there is: it has run, and does not run again
    assert bench.ended(spec) == learners
    bench.stop(spec)
    assert not bench.run(spec).path.exists()
    bench.engine.stop(spec.run_name, timedelta(0))  # nothing there any more: no error
    until(lambda: [path.name for path in (bench.home / "runs").iterdir()] == [".lock"])


def test_a_learner_has_what_it_shall_have_and_nothing_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SOMETHING_PRIVATE", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    script = """
import json, os, pathlib, signal, sys
mask = os.umask(0)
facts = {
    "environment": dict(os.environ), "cwd": os.getcwd(), "umask": mask, "python": sys.prefix,
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3"),
    "session": os.getsid(0) == os.getpid(),
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "arguments": pathlib.Path("/proc/self/cmdline").read_text(),
    "supervisor": pathlib.Path(f"/proc/{os.getppid()}/environ").read_text(),
}
pathlib.Path(OUT, "facts-" + os.environ["WEFT_RANK"]).write_text(json.dumps(facts))
"""
    spec = bench.spec(script, learners=3, cpus=2.5)
    bench.engine.launch(spec)
    bench.ended(spec)
    facts = json.loads((bench.out / "facts-2").read_text())
    run = bench.run(spec)
    environment = facts["environment"]
    assert environment["WEFT_RANK"] == "2"
    assert environment["WEFT_NUM_LEARNERS"] == "3"
    assert environment["WEFT_API_URL"] == spec.api_url
    assert environment["WEFT_ATTEMPT_TOKEN"] == spec.token
    assert environment["WEFT_WORKDIR"] == environment["HOME"] == facts["cwd"] == str(run.path / "learner-2")
    assert environment["WEFT_CACHE_DIR"] == str(bench.home / "cache" / "prj-1")
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["PATH"].split(":")[0] == f"{sys.prefix}/bin"
    assert environment["HTTPS_PROXY"] == "http://proxy:3128"
    assert not {"WEFT_DATABASE_URL", "SOMETHING_PRIVATE", "WEFT_CONFIG", "PYTEST_CURRENT_TEST"} & set(environment)
    assert "WEFT_" not in facts["supervisor"]
    assert Path(environment["WEFT_SHARED_DIR"]).is_dir()
    assert facts["umask"] == 0o077
    assert facts["python"] == sys.prefix
    assert facts["descriptors"] == ["/dev/null", *[str(run.agent_log(2))] * 2]
    assert facts["session"]
    assert facts["blocked"] == 0
    assert spec.token not in facts["arguments"]
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.path / "spec.json").stat().st_mode) == 0o600


def test_the_agents_last_words_stand_in_the_reason_without_its_token(bench: Bench) -> None:
    spec = bench.spec("import os\nraise ImportError('no boto3 here ' + os.environ['WEFT_ATTEMPT_TOKEN'])")
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason) == (1, "exit code 1: ImportError: no boto3 here <token>")


def test_launching_again_starts_nothing_twice(bench: Bench) -> None:
    spec = bench.spec(COUNT, learners=2)
    for _ in range(3):
        bench.new_engine().launch(spec)
    for rank in (0, 1):
        until(bench.said(f"started-{rank}").read_text)
    bench.stop(spec)
    assert [(bench.out / f"started-{rank}").read_text() for rank in (0, 1)] == ["x", "x"]


def test_workers_that_launch_at_the_same_time_start_it_once(bench: Bench) -> None:
    spec = bench.spec(COUNT, learners=2)
    ready, go = os.pipe()
    workers = []
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(ready, 1)  # all are let go together
            code = 1
            try:
                bench.new_engine().launch(spec)
                code = 0
            finally:
                os._exit(code)
        workers.append(pid)
    os.close(go)
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0] * 6
    os.close(ready)
    for rank in (0, 1):
        until(bench.said(f"started-{rank}").read_text)
    gang = bench.run(spec).gang()
    assert gang
    supervisors = [line for line in bench.processes() if "supervision.gang" in line]
    assert len(supervisors) == 3, "one for the gang, one for each learner"
    bench.stop(spec)
    assert [(bench.out / f"started-{rank}").read_text() for rank in (0, 1)] == ["x", "x"]


def _launch_and_die(engine: LocalEngine, spec: LaunchSpec, line: int) -> bool:
    """In a process of its own: launch, and be killed after so many lines of our code; False: it came to the end."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal count
        if "weft_workers" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        if count >= line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        engine.launch(spec)
    finally:
        os._exit(0)


def test_a_worker_killed_at_any_point_of_a_launch_leaves_nothing_half_made(bench: Bench) -> None:
    at, killed = 1, True
    while killed:
        spec = bench.spec(COUNT, job=f"k{at}", learners=2)
        killed = _launch_and_die(bench.engine, spec, at)
        bench.new_engine().launch(spec)  # the next worker
        for rank in (0, 1):
            path = bench.said(f"started-{rank}")
            until(path.read_text)
        bench.stop(spec)
        for path in bench.out.iterdir():
            assert path.read_text() == "x"
            path.unlink()
        at += 61
    assert at > 200, "it was killed at several points"


def test_the_learners_outlive_the_worker(bench: Bench) -> None:
    spec = bench.spec(COUNT)
    worker = os.fork()
    if worker == 0:
        os.setsid()
        bench.engine.launch(spec)
        os.killpg(0, signal.SIGKILL)  # it, and all that is in its group
    os.waitpid(worker, 0)
    bench.said("started-0")
    agent = bench.agent_of(spec)
    seen = bench.new_engine().observe()[spec.run_name]
    assert seen.learners[0].state is LearnerState.RUNNING
    assert os.getpgid(agent.pid) == agent.pid


def test_all_learners_or_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = bench.spec(COUNT, learners=3)
    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "_start", lambda self, run, agent: run.learner(2).write_text("in the way"))
        bench.engine.launch(spec)
    bench.engine.launch(spec)
    seen = bench.wait(spec, lambda seen: seen.failed)
    assert "File exists" in seen.failed
    bench.wait(spec, lambda seen: seen.gone)
    assert not list(bench.out.iterdir())
    bench.stop(spec)


def test_another_attempt_under_the_same_name_is_refused(bench: Bench) -> None:
    bench.engine.launch(bench.spec(FOREVER))
    other = bench.spec(FOREVER)
    object.__setattr__(other, "job_id", "job-other")
    with pytest.raises(EngineUnreachable, match="of another job_id"):
        bench.engine.launch(other)


def test_each_engine_and_installation_sees_its_own_runs(bench: Bench) -> None:
    spec = bench.spec(FOREVER)
    bench.engine.launch(spec)
    assert list(bench.new_engine().observe()) == [spec.run_name]
    assert bench.new_engine(name="second").observe() == {}
    assert bench.new_engine(installation="another").observe() == {}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpus": 2, "learners": 3}, "3 learners together ask for 6 CPUs, this machine has 4"),
        ({"gpus": 3}, "the job asks for 3 GPUs, this machine has 2"),
        ({"memory": 3 << 30}, "the job asks for 3 GiB of memory, this machine has 2"),
        ({"image": "pytorch:0.1"}, "image 'pytorch:0.1': the local engine knows pytorch:2.13.0, "),
        ({"image": "/nowhere"}, "image /nowhere: no virtual environment is there"),
    ],
)
def test_what_can_never_run_is_refused(bench: Bench, asked: dict[str, Any], message: str) -> None:
    engine = bench.new_engine(cpus=4, gpus=2, memory=2 << 30)
    with pytest.raises(LaunchRefused) as caught:
        engine.launch(bench.spec(FOREVER, **asked))
    assert message in str(caught.value)
    assert caught.value.code in ("S100", "S103")
    assert engine.observe() == {}


_PSUTIL = """
import os, sys, weft_trainer, psutil
open(f"{OUT}/draft", "w").write(f"{psutil.__file__} {psutil.Process().pid == os.getpid()} {sys.executable}")
os.rename(f"{OUT}/draft", f"{OUT}/psutil")
"""


def looks_for_what_was_brought(bench: Bench) -> None:
    """The stand-in for the agent does so as the agent itself."""
    shutil.copy(AGENT / "__init__.py", bench.agent)
    (bench.agent / "metrics").mkdir()
    (bench.agent / "metrics" / "__init__.py").touch()
    (bench.agent / "metrics" / "logging.py").write_text("log_metrics = None\n")


def test_an_environment_of_the_users_own_need_not_have_what_the_agent_needs(bench: Bench) -> None:
    """Nor a program of the name `python`, nor may anything be written into it."""
    bare = bench.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    (bare / "bin" / "python").unlink()
    (bare / "bin" / "python3").unlink()
    (bare / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    before = {path: path.lstat().st_mtime_ns for path in bare.rglob("*")}
    looks_for_what_was_brought(bench)
    spec = bench.spec(_PSUTIL, image=str(bare))
    bench.engine.launch(spec)
    where, works, python = bench.said("psutil").read_text().split()
    assert Path(where).parents[1].name == "brought"
    assert works == "True"
    assert python == str(bare / "bin" / "python3")
    assert {path: path.lstat().st_mtime_ns for path in bare.rglob("*")} == before


def test_the_environments_own_psutil_comes_first(bench: Bench) -> None:
    looks_for_what_was_brought(bench)
    bench.engine.launch(bench.spec(_PSUTIL))
    assert bench.said("psutil").read_text().split()[0] == psutil.__file__


def test_an_environment_that_lacks_what_is_not_here_either_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = bench.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    monkeypatch.setattr(environments, "_portable", lambda package: None)
    with pytest.raises(LaunchRefused, match=rf"lacks psutil.*`{bare}/bin/python -m pip install psutil`"):
        bench.engine.launch(bench.spec(FOREVER, image=str(bare)))


def test_an_upgrade_of_the_agent_changes_nothing_under_a_running_learner(bench: Bench) -> None:
    spec = bench.spec("import weft_trainer\nopen(f'{OUT}/' + weft_trainer.__name__, 'w').write(weft_trainer.__file__)")
    bench.engine.launch(spec)
    first = Path(bench.said("weft_trainer").read_text()) if bench.ended(spec) else Path()
    (bench.agent / "new.py").touch()
    assert first.is_relative_to(bench.folder / "environments")
    assert bench.images.agent() != first.parents[1]
    assert first.exists()


def test_a_home_that_can_not_be_used_is_unreachable(bench: Bench) -> None:
    bench.home.write_text("a file")
    with pytest.raises(EngineUnreachable, match="engine local"):
        bench.engine.launch(bench.spec(FOREVER))
    bench.home.unlink()


def test_the_settings_engines_are_built(tmp_path: Path) -> None:
    made = engines.build(Settings(home=tmp_path), "inst-1")
    assert list(made) == ["local"]
    [node] = made["local"].capacity().nodes
    assert node.cpus > 0
    assert node.memory > 0
    far = {"lab": {"type": "ray"}, "far": {"type": "kubernetes", "kubeconfig": str(tmp_path / "none")}}
    assert [*engines.build(Settings(home=tmp_path, engines={"lab": far["lab"]}), "inst-1")] == ["lab"]


def test_an_engine_that_can_not_be_set_up_is_unreachable_and_the_others_work(bench: Bench, tmp_path: Path) -> None:
    chosen = {"local": {"type": "local"}, "far": {"type": "kubernetes", "kubeconfig": str(tmp_path / "none")}}
    made = engines.build(Settings(home=tmp_path, engines=chosen), "inst-1")
    assert made["local"].capacity().nodes
    far, spec = made["far"], bench.spec(FOREVER)
    asked = (
        far.observe,
        far.capacity,
        lambda: far.launch(spec),
        lambda: far.grow(spec, [1]),
        lambda: far.stop(spec.run_name, timedelta(0)),
    )
    for ask in asked:
        with pytest.raises(EngineUnreachable, match="far could not be set up: there is no kubeconfig /"):
            ask()
