"""An agent of the local engine: a fork of a process that has loaded it, or a program of its own where that can't be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.engines.bench import Bench

from weft_core.launch import LaunchSpec
from weft_workers.engines.local import isolation
from weft_workers.environments import EnvironmentBuilder
from weft_workers.supervision import spawn

# All that a process can see of how it was started. The folders that differ between two runs have one name.
_FACTS = """
import json, os, psutil, random, resource, signal, site, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
facts = {
    "forked": "weft_workers.supervision.agents" in sys.modules,
    "variables": {name: value for name, value in os.environ.items() if name != "WEFT_PUBLISHED_PORT"},
    "command": psutil.Process().cmdline(),
    "argv": sys.argv,
    "executable": [sys.executable, os.path.realpath(sys._base_executable), os.readlink("/proc/self/exe")],
    "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix],
    "path": [entry for entry in sys.path if entry != os.getcwd()],
    "site": [site.ENABLE_USER_SITE, site.PREFIXES],
    "helpers": [hasattr(__import__("builtins"), name) for name in ("quit", "copyright", "help")],
    "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")},
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)],
    "files": sorted(os.listdir("/proc/self/fd")),
    "outputs": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
    "streams": [(stream.encoding, stream.errors) for stream in (sys.stdout, sys.stderr)],
    "rights": {name: status[name] for name in ("Uid", "Gid", "CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs")},
    "cwd": os.getcwd(),
    "umask": status["Umask"],
    "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)],
    "session": os.getsid(0) == os.getpid(),
    "psutil": psutil.__file__,
}
told = json.dumps(facts)
for name in ("WEFT_WORKDIR", "PYTHONPATH", "WEFT_SHARED_DIR"):
    told = told.replace(os.environ[name], name)
told = told.replace(os.path.dirname(os.environ["WEFT_WORKDIR"]), "RUN")
open(f"{OUT}/facts-{os.environ['WEFT_RANK']}", "w").write(told.replace(os.environ["WEFT_API_URL"], "API"))
"""
_DRAW = "import os, random; open(f\"{OUT}/drawn-{os.environ['WEFT_RANK']}\", 'w').write(str(random.random()))"


@pytest.fixture(params=["none", "auto"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Without and with a sandbox."""
    if request.param == "auto" and (obstacle := isolation.obstacle()):
        pytest.skip(f"NOT RUN: this machine allows no sandbox: {obstacle}")
    bench = Bench(tmp_path)
    bench.engine = bench.new_engine(isolation=request.param, host_mounts=[tmp_path])
    yield bench
    bench.close()


def run(bench: Bench, spec: LaunchSpec) -> None:
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.reason) == (0, "")


def facts(bench: Bench, job: str, **more: Any) -> dict[str, Any]:
    run(bench, bench.spec(_FACTS, job=job, **more))
    found: dict[str, Any] = json.loads((bench.out / "facts-0").read_text())
    return found


def test_a_fork_is_what_a_program_of_its_own_would_be(bench: Bench) -> None:
    forked = facts(bench, "forked")
    (bench.agent / "forked.py").unlink()  # so it is another agent, which can't be a fork
    executed = facts(bench, "executed")
    assert (forked.pop("forked"), executed.pop("forked")) == (True, False)
    assert forked == executed


@pytest.mark.parametrize("bench", ["none"], indirect=True)
def test_so_is_a_fork_of_a_worker_that_ignores_sigint(bench: Bench) -> None:
    """As a program does that a script has started in the background. The fork server inherits it."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        test_a_fork_is_what_a_program_of_its_own_would_be(bench)
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("bench", ["none"], indirect=True)  # a sandbox does not show the script's interpreter
def test_an_image_with_another_interpreter_has_an_agent_that_is_no_fork(bench: Bench, tmp_path: Path) -> None:
    python = tmp_path / "image" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert facts(bench, "own")["forked"]
    assert not facts(bench, "other", image=str(tmp_path / "image"))["forked"]


def test_an_agent_that_can_not_be_loaded_says_so_itself(bench: Bench) -> None:
    (bench.agent / "forked.py").write_text("import weft_trainer.gone")
    (bench.agent / "__main__.py").write_text("import weft_trainer.gone")
    spec = bench.spec("")
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert learner.exit_code == 1
    assert learner.reason == "exit code 1: ModuleNotFoundError: No module named 'weft_trainer.gone'"


def test_forks_draw_numbers_of_their_own(bench: Bench) -> None:
    spec = bench.spec(_DRAW, learners=2)
    bench.engine.launch(spec)
    bench.ended(spec)
    assert len({bench.said(f"drawn-{rank}").read_text() for rank in range(2)}) == 2


def test_the_agent_can_be_loaded_by_a_fork_server(tmp_path: Path) -> None:
    """As it is in an installation, and with psutil, which a fork would import otherwise."""
    agent = EnvironmentBuilder(tmp_path).agent()
    load = (
        "import sys; sys.path += sys.argv[2:]; from weft_workers.supervision import agents; agents.load(sys.argv[1]); "
        "print(agents._loaded.module.__file__, agents._loaded.added); print(sys.modules['psutil'].__file__)"
    )
    command = [sys.executable, "-I", "-S", "-c", load, str(agent), *spawn.SOURCES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    brought = agent / "weft_trainer" / "brought"
    assert done.stdout.splitlines() == [
        f"{agent / 'weft_trainer' / 'forked.py'} ['{brought}']",
        str(brought / "psutil" / "__init__.py"),
    ]
    assert os.listdir(brought)
