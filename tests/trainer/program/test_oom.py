"""The kernel's kills for memory: those of the learner's own control group, wherever it is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft_trainer.program.oom import Kills, kills

POD = "/kubepods/burstable/pod1f/7c"
"""As a node names the group of a container."""


@pytest.mark.parametrize(
    ("cgroup", "root", "mount", "file"),
    [
        pytest.param(f"4:memory:{POD}", POD, "cgroup rw,memory", "memory.oom_control", id="container, version 1"),
        pytest.param(f"0::{POD}", POD, "cgroup2 rw", "memory.events", id="container, version 2"),
        pytest.param("0::/", "/", "cgroup2 rw", "memory.events", id="own namespace, version 2"),
        pytest.param("9:cpu,memory:/a/b", "/", "cgroup rw,cpu,memory", "a/b/memory.oom_control", id="machine"),
    ],
)
def test_the_counter_of_the_own_group(tmp_path: Path, cgroup: str, root: str, mount: str, file: str) -> None:
    mounted = tmp_path / "mounted"
    (mounted / file).parent.mkdir(parents=True)
    (mounted / file).write_text("under_oom 0\noom_kill 3\n")
    kind, options = mount.split()
    proc = written(tmp_path, cgroup, f"35 31 0:32 {root} {mounted} rw,relatime shared:9 - {kind} source {options}")
    assert kills(proc) == Kills(3, True)


def test_without_a_group_of_its_own_the_machines_count(tmp_path: Path) -> None:
    proc = written(tmp_path, f"4:memory:{POD}", "35 31 0:32 /elsewhere /nowhere rw - cgroup x rw,memory")
    assert kills(proc) == Kills(7, False)


def test_the_kill_of_another_job_is_no_certainty() -> None:
    assert Kills(4, True).since(Kills(3, True)) == "out of memory"
    assert Kills(4, False).since(Kills(3, False)) == "probably out of memory"
    assert Kills(3, True).since(Kills(3, True)) == ""
    assert Kills(9, False).since(Kills(3, True)) == ""


def written(folder: Path, cgroup: str, mount: str) -> Path:
    """A ``/proc`` of one process, on a machine that has killed seven times for memory."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"10:pids:/\n{cgroup}\n")
    (proc / "self" / "mountinfo").write_text(f"31 23 0:28 / /sys rw - tmpfs tmpfs rw\n{mount}\n")
    (proc / "vmstat").write_text("nr_free_pages 5\noom_kill 7\n")
    return proc
