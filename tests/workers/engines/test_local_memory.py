"""The kernel limits a learner's memory where it lets us, and a kill for lack of memory is reported as that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.workers.engines.bench import FOREVER, Bench, kill, until

from weft_workers.supervision import cgroups, spawn
from weft_workers.supervision.cgroups import MemoryGroup

EATER = "eaten = bytearray(400 << 20)\n"
LIMIT = 128 << 20
REASON = "by the kernel: out of memory (limit 128 MiB)"


@pytest.fixture
def _groups() -> None:
    """Tests with this need a writable memory control group."""
    group = MemoryGroup.make(f"weft-test-{os.getpid()}", 1 << 30)
    if group is None:
        pytest.skip("NOT RUN: this machine lets us make no memory control group, so its kernel limits nothing for us")
    group.remove()


@pytest.mark.usefixtures("_groups")
def test_a_learner_that_eats_too_much_is_killed_and_it_is_told_why(bench: Bench) -> None:
    spec = bench.spec(EATER, memory=LIMIT)
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.oom, learner.reason) == (-9, True, f"killed {REASON}")
    until(lambda: MemoryGroup.find(bench.run(spec).group_name(0)) is None)  # it is taken away when that has been told


@pytest.mark.usefixtures("_groups")
@pytest.mark.parametrize(("code", "reason"), [(137, f"killed {REASON}"), (0, f"a process of it was killed {REASON}")])
def test_it_is_told_too_when_the_kernel_takes_the_training_and_leaves_the_agent(
    bench: Bench, code: int, reason: str
) -> None:
    script = f"""
import subprocess, sys
trained = subprocess.run([sys.executable, "-c", {EATER!r}])
assert trained.returncode == -9
raise SystemExit({code})
"""
    spec = bench.spec(script, memory=LIMIT)
    bench.engine.launch(spec)
    [learner] = bench.ended(spec).values()
    assert (learner.exit_code, learner.oom, learner.reason) == (code, True, reason)


@pytest.mark.usefixtures("_groups")
def test_each_learner_has_a_limit_of_its_own(bench: Bench) -> None:
    spec = bench.spec(f"import os\nif os.environ['WEFT_RANK'] == '1':\n    {EATER}", memory=LIMIT, learners=2)
    bench.engine.launch(spec)
    learners = bench.ended(spec)
    assert [(learner.exit_code, learner.oom) for learner in learners.values()] == [(0, False), (-9, True)]


@pytest.mark.usefixtures("_groups")
def test_the_control_group_of_a_vanished_run_is_taken_away(bench: Bench) -> None:
    spec = bench.spec(FOREVER)
    bench.engine.launch(spec)
    run, agent = bench.run(spec), bench.agent_of(spec)
    group = MemoryGroup.find(run.group_name(0))
    assert group
    assert agent.pid in group.pids()
    kill(run.supervisor(0))
    bench.ended(spec)
    assert not group.folder.exists()


def _without_groups(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the supervisors find no control groups, and a machine whose count of kills can be set."""
    source = Path(cgroups.__file__).resolve().parents[2]
    copy = tmp_path / "source"
    for path in source.glob("weft_workers/supervision/*.py"):
        target = copy / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            path.read_text()
            .replace('_PROC = Path("/proc/self")', '_PROC = Path("/nowhere")')
            .replace('Path("/proc/vmstat")', f"Path({str(bench.folder / 'vmstat')!r})")
        )
    (copy / "weft_workers" / "__init__.py").touch()
    (bench.folder / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    monkeypatch.setattr("weft_workers.supervision.spawn.SOURCES", (str(copy), spawn.SOURCES[1]))


@pytest.mark.parametrize(
    ("kills", "oom", "reason"),
    [
        (7, False, "killed by signal 9 (SIGKILL)"),
        (8, True, "killed by signal 9 (SIGKILL), probably out of memory"),
    ],
)
def test_without_control_groups_the_machines_count_of_kills_is_a_hint(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kills: int, oom: bool, reason: str
) -> None:
    _without_groups(bench, monkeypatch, tmp_path)
    spec = bench.spec("open(f'{OUT}/ready', 'w')\n" + FOREVER, memory=LIMIT)
    bench.engine.launch(spec)
    bench.said("ready")
    (bench.folder / "vmstat").write_text(f"nr_free_pages 1\noom_kill {kills}\n")
    kill(bench.agent_of(spec))
    [learner] = bench.ended(spec).values()
    assert (learner.oom, learner.reason) == (oom, reason)


# --- version 2, on pretend files: a kernel has the memory controller in one of the two only ---


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretend unified hierarchy with this process in /weft.service, under /; the groups' files are plain files."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cgroup").write_text("0::/weft.service\n")
    mount = tmp_path / "sys"
    own = mount / "weft.service"
    own.mkdir(parents=True)
    (tmp_path / "proc" / "mountinfo").write_text(f"35 24 0:30 / {mount} rw,nosuid - cgroup2 cgroup2 rw\n")
    (mount / "cgroup.controllers").write_text("cpu memory pids\n")
    (mount / "cgroup.subtree_control").write_text("cpu memory\n")
    (own / "memory.max").write_text("1073741824\n")
    (own / "cpu.max").write_text("150000 100000\n")
    monkeypatch.setattr(cgroups, "_PROC", tmp_path / "proc")
    return own


def test_version_2_limits_are_respected(unified: Path) -> None:
    assert cgroups.memory_limit() == 1 << 30
    assert cgroups.cpu_limit() == 1.5
    (unified / "memory.max").write_text("max\n")
    (unified / "cpu.max").write_text("max 100000\n")
    assert cgroups.memory_limit() is None
    assert cgroups.cpu_limit() is None


def test_version_2_group(unified: Path) -> None:
    group = unified / "learner"
    group.mkdir()
    for name in ("memory.max", "memory.swap.max", "cgroup.procs"):
        (group / name).touch()
    made = MemoryGroup.make("learner", 1 << 29)
    assert made
    assert made.folder == group
    assert (group / "memory.max").read_text() == str(1 << 29)
    assert (group / "memory.swap.max").read_text() == "0"
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert made.oom_kills() == 1


def test_version_2_goes_beside_its_own_group_only_where_that_has_no_limit(unified: Path) -> None:
    assert MemoryGroup.make("learner", 1 << 29) is None, "the own group's limit would no longer count"
    (unified / "memory.max").write_text("max\n")
    (unified.parent / "learner").mkdir()
    (unified.parent / "learner" / "memory.max").touch()
    made = MemoryGroup.make("learner", 1 << 29)
    assert made
    assert made.folder == unified.parent / "learner"
