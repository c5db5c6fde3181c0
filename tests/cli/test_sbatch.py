"""``weft sbatch``: the directives of a batch script, and the manifest that they become."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.api.conftest import Api, api, api_settings
from tests.cli.conftest import Weft

from weft.client import Client
from weft.errors import InvalidScript
from weft.exits import ExitCode
from weft.slurm.batch import Batch, make_batch
from weft.slurm.directives import Directive, take_option
from weft.slurm.script import read_script
from weft.slurm.times import seconds, span

__all__ = ["api", "api_settings"]  # fixtures

SCRIPT = """#!/bin/bash -l
#SBATCH --job-name=digits   # a comment
#SBATCH -N 2 --ntasks-per-node=4
#SBATCH --gres=gpu:a100:4
#SBATCH --cpus-per-task 8
#SBATCH --mem=64G
#SBATCH --time=1-12:30:00
#SBATCH --partition=gpu
#SBATCH --output=%x-%j.out
##SBATCH --nodes=9

set -e
#SBATCH --nodes=7
srun python train.py "$@"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a batch script and a program."""
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    (folder / "train.py").write_text("import torch\n")
    (folder / "scripts/train.slurm").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    return folder


def batch(words: str, more: str = "") -> Batch:
    return make_batch(directives(words), directives(more))


def directives(words: str) -> list[Directive]:
    left, found = shlex.split(words), []
    while left:
        found += take_option(left)
    return found


# --- directives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("", {"learners": 1}),
        ("--nodes=3 --comment='a b'", {"learners": 3, "description": "a b"}),
        ("-N2-2", {"learners": 2}),
        ("-n 4", {"learners": 1, "cpus": 4, "SLURM_NTASKS_PER_NODE": "4"}),
        ("-n4 --ntasks-per-node=2 -c3", {"learners": 2, "cpus": 6, "SLURM_NTASKS_PER_NODE": "2"}),
        ("-N2 -n4", {"learners": 2, "cpus": 2, "SLURM_NTASKS_PER_NODE": "2"}),
        ("--cpus-per-task=8", {"learners": 1, "cpus": 8}),
        ("--gres=gpu:2", {"learners": 1, "gpus": 2, "SLURM_GPUS_PER_NODE": "2"}),
        ("--gres=gpu", {"learners": 1, "gpus": 1, "SLURM_GPUS_PER_NODE": "1"}),
        ("--gpus-per-node=h100:8", {"learners": 1, "gpus": 8, "gpu_type": "h100", "SLURM_GPUS_PER_NODE": "8"}),
        ("-N2 -G 8", {"learners": 2, "gpus": 4, "SLURM_GPUS_PER_NODE": "4"}),
        (
            "--ntasks-per-node=2 --gpus-per-task=2",
            {"learners": 1, "gpus": 4, "cpus": 2, "SLURM_NTASKS_PER_NODE": "2"}
            | {"SLURM_GPUS_PER_TASK": "2", "SLURM_GPUS_PER_NODE": "4"},
        ),
        (
            "--gres=gpu:4 --ntasks-per-gpu=1",
            {"learners": 1, "gpus": 4, "cpus": 4, "SLURM_NTASKS_PER_NODE": "4", "SLURM_GPUS_PER_NODE": "4"},
        ),
        ("--gpus-per-node=2 --cpus-per-gpu=6", {"learners": 1, "gpus": 2, "cpus": 12, "SLURM_GPUS_PER_NODE": "2"}),
        ("--mem=16G", {"learners": 1, "memory": "16 GiB"}),
        ("--mem=1500", {"learners": 1, "memory": "1500 MiB"}),
        ("--mem=1.5TB", {"learners": 1, "memory": "1536 GiB"}),
        ("--mem-per-cpu=500M -c 4", {"learners": 1, "cpus": 4, "memory": "2000 MiB"}),
        ("--mem-per-gpu=10g -G2", {"learners": 1, "gpus": 2, "memory": "20 GiB", "SLURM_GPUS_PER_NODE": "2"}),
        ("-t 90", {"learners": 1, "max_runtime": "1h30m"}),
        ("-t UNLIMITED", {"learners": 1}),
        ("--export=ALL,LR=0.1,SEED=7", {"learners": 1, "LR": "0.1", "SEED": "7"}),
        ("--part=gpu --exclusive", {"learners": 1}),
        (
            "-d afterok:job-1:job-2,afterany:job-3,afternotok:job-4",
            {
                "learners": 1,
                "after": [
                    {"job": "job-1", "on": "completed"},
                    {"job": "job-2", "on": "completed"},
                    {"job": "job-3", "on": "ended"},
                    {"job": "job-4", "on": "failed"},
                ],
            },
        ),
    ],
)
def test_what_directives_become(words: str, keys: dict[str, Any]) -> None:
    made = batch(words)
    found = {key: value for key, value in made.keys.items() if key != "env"}
    assert found | {name: value for name, value in made.env.items() if name != "SLURM_CPUS_PER_TASK"} == keys


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--nodes=two", "--nodes=two: expected a whole number from 1"),
        ("--nodes=1-4", "--nodes=1-4: expected a whole number from 1"),
        ("-N2 -n3", "--ntasks=3: expected a multiple of the number of nodes, 2"),
        ("-N2 --ntasks-per-node=2 -n3", "--ntasks=3: expected 4, for 2 nodes with 2 tasks each"),
        ("--gres=gpu:2 --gpus-per-node=4", "--gpus-per-node=4, --gres=gpu:2 contradict each other"),
        ("-N2 -G3", "--gpus=3: expected a multiple"),
        ("--gpus=lots:of", "expected a number of GPUs such as 4 or a100:4"),
        ("--ntasks-per-node=3 --gpus-per-task=1 --gres=gpu:4", "3 tasks with 1 GPUs do not make 4 GPUs"),
        ("--mem=lots", "--mem=lots: expected a size such as 16G"),
        ("--mem=0", "such as --mem=64G on the command line"),
        ("--mem=4G --mem-per-cpu=1G", "--mem=4G is given as well"),
        ("--mem-per-gpu=4G", "the job has no GPUs"),
        ("--time=tomorrow", "expected M, M:S, H:M:S, D-H"),
        ("--array=1-", "expected indices such as 0-7"),
        ("--array=0-5000", "expected at most 1,000 indices"),
        ("--array=0-9%0", "expected a number from 1 after %"),
        ("-d afterok:1?afterok:2", "expected ',' between them, found '?'"),
        ("-d after:job-1+5", "Weft can't wait for the start of a job"),
        ("-d singleton", "name the jobs that must end before"),
        ("-d afterok", "expected afterok:JOB, afterany:JOB or afternotok:JOB, found 'afterok'"),
        ("--hold", "Weft starts a job as soon as there is room"),
        ("--export=NOT_SET_AT_ALL", "the variable NOT_SET_AT_ALL is not set here"),
    ],
)
def test_directives_that_are_refused(words: str, error: str) -> None:
    with pytest.raises(InvalidScript) as caught:
        batch(words)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--nods=2", "unknown directive --nods: did you mean --nodes?"),
        ("--node=2", "unknown directive --node: did you mean --nodes or --nodelist"),
        ("--frobnicate", "unknown directive --frobnicate"),
        ("-Z", "unknown directive -Z"),
        ("--nodes", "--nodes lacks its value"),
        ("--requeue=yes", "--requeue has no value"),
    ],
)
def test_unknown_directives_name_the_nearest(words: str, error: str) -> None:
    with pytest.raises(InvalidScript, match=error.replace("?", r"\?")):
        directives(words)


def test_all_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nods=2\n\n#SBATCH nodes 2\n#SBATCH --job-name='a\n#SBATCH -N2\n")
    with pytest.raises(InvalidScript) as caught:
        read_script(script)
    assert str(caught.value).splitlines() == [
        f"{script}:2: unknown directive --nods: did you mean --nodes?",
        f"{script}:4: expected a directive such as --nodes=2, found 'nodes'",
        f"{script}:5: no closing quotation",
    ]


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("#!/bin/bash", ["bash"]),
        ("#!/bin/bash -l", ["bash"]),
        ("#!/usr/bin/env python3", ["python3"]),
        ("#!/usr/bin/env -S bash -e", ["bash", "-e"]),
        ("#! /opt/cluster/bin/zsh -x", ["zsh", "-x"]),
    ],
)
def test_the_program_of_the_first_line(tmp_path: Path, line: str, program: list[str]) -> None:
    (tmp_path / "job").write_text(f"{line}\n")
    assert read_script(tmp_path / "job").program == program


def test_a_script_begins_with_its_program(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("python train.py\n")
    with pytest.raises(InvalidScript, match="job:1: a batch script begins with #! and its program"):
        read_script(tmp_path / "job")


def test_the_command_line_wins() -> None:
    assert batch("--nodes=2 --mem=4G", "-N4").keys == {"learners": 4, "memory": "4 GiB"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:00:05", 3605),
        ("2-0", 172800),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-0:0:1", 86401),
        ("0", None),
        ("INFINITE", None),
    ],
)
def test_time_limits(text: str, expected: int | None) -> None:
    assert seconds(text) == expected


def test_spans() -> None:
    assert [span(value) for value in (59, 3600, 131405)] == ["59s", "1h", "1d12h30m5s"]


def test_an_array_is_one_job_for_each_index() -> None:
    made = batch("--array=1,5-9:2%4 --export=NONE,A=b -J digits")
    assert made.array == [1, 5, 7, 9]
    assert made.at_once == 4
    manifests = made.manifests({"name": "digits", "learners": 1, "env": made.env})
    assert [manifest["name"] for manifest in manifests] == ["digits-1", "digits-5", "digits-7", "digits-9"]
    [number] = {manifest["labels"]["array"] for manifest in manifests}
    assert manifests[1]["env"] == {
        "A": "b",
        "SLURM_JOB_NAME": "digits",
        "SLURM_ARRAY_JOB_ID": number,
        "SLURM_ARRAY_TASK_ID": "5",
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_ARRAY_TASK_STEP": "1",
    }


# --- the command ---------------------------------------------------------------------------------------------------


def test_a_script_becomes_a_manifest(weft: Weft, project: Path) -> None:
    done = weft("sbatch", "--nodes=3", "--save=job.yml", "--with", "einops", "scripts/train.slurm", "--lr", "0.1")
    assert done.code == 0, done.err
    assert yaml.safe_load((project / "job.yml").read_text()) == {
        "name": "digits",
        "learners": 3,
        "gpu_type": "a100",
        "gpus": 4,
        "cpus": 32,
        "memory": "64 GiB",
        "max_runtime": "1d12h30m",
        "env": {"SLURM_NTASKS_PER_NODE": "4", "SLURM_GPUS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "8"},
        "framework": {
            "name": "pytorch",
            "packages": ["einops"],
            "command": "bash scripts/train.slurm --lr 0.1",
            "launcher": "slurm",
        },
    }
    said = " ".join(done.err.split())
    assert "scripts/train.slurm:8: --partition=gpu has no effect on Weft" in said
    assert "scripts/train.slurm:9: --output=%x-%j.out: Weft keeps the output, and `weft logs JOB` prints it" in said
    assert "scripts/train.slurm:13: #SBATCH --nodes=7 has no effect: it comes after the first command" in said
    assert "scripts/train.slurm:1: -l has no effect on Weft" in said
    assert "3 learners, each with 32 CPUs, 4 GPUs, 64 GiB and 4 tasks; ends after 1d12h30m" in said


def test_unknown_directives_end_the_command(weft: Weft, project: Path) -> None:
    (project / "bad.sh").write_text("#!/bin/bash\n#SBATCH --nods=2\n")
    done = weft("sbatch", "bad.sh")
    assert (done.code, done.out) == (ExitCode.INVALID, "")
    assert "bad.sh:2: unknown directive --nods: did you mean --nodes?" in done.err
    assert weft("sbatch", "--nods=2", "bad.sh").code == ExitCode.INVALID


def test_options_that_do_not_go_together(weft: Weft, project: Path) -> None:
    (project / "train.sh").write_text("#!/bin/bash\npython train.py\n")
    for option, error in (("--save", "it submits nothing"), ("--follow", "an array has several jobs")):
        done = weft("sbatch", option, "-a", "1-2", "train.sh")
        assert done.code == ExitCode.USAGE
        assert error in done.err
    assert weft("sbatch").code == ExitCode.USAGE


@pytest.fixture
def real(api: Api, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """``weft`` is signed in at the real API; its client."""
    person = api.person()
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", person.token)
    with Client(api.url, person.token) as client:
        yield client


def submitted(out: str) -> list[str]:
    """The ids in the lines that sbatch would print; the API's own log is between them."""
    return re.findall(r"^Submitted batch job (job-\w+)$", out, re.MULTILINE)


def test_a_batch_script_becomes_a_job(real: Client, weft: Weft, project: Path) -> None:
    sizes = ["--gres=none", "--mem=1G", "-c1", "--time=5"]
    done = weft("sbatch", *sizes, "--framework", "python", "--set", "labels.team=vision", "scripts/train.slurm", "-x")
    assert done.code == 0, done.err
    [job] = [real.job(found) for found in submitted(done.out)]
    assert (job.name, job.learners, job.manifest["labels"]) == ("digits", 2, {"team": "vision"})
    assert job.manifest["framework"]["launcher"] == "slurm"
    assert job.manifest["framework"]["command"] == "bash scripts/train.slurm -x"
    assert job.manifest["env"] == {"SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "1"}
    assert job.manifest["max_runtime_seconds"] == 300
    alone = weft("sbatch", "--parsable", *sizes, "--framework=python", "scripts/train.slurm")
    [line] = [line for line in alone.out.splitlines() if line.startswith("job-")]
    assert real.job(line).id == line


def test_an_array_becomes_jobs_with_a_label(real: Client, weft: Weft, project: Path) -> None:
    (project / "train.sh").write_text("#!/bin/sh\n#SBATCH --array=3-5%2\necho $SLURM_ARRAY_TASK_ID\n")
    done = weft("sbatch", "train.sh")
    assert done.code == 0, done.err
    jobs = [real.job(found) for found in submitted(done.out)]
    assert [job.manifest["env"]["SLURM_ARRAY_TASK_ID"] for job in jobs] == ["3", "4", "5"]
    [number] = {job.manifest["labels"]["array"] for job in jobs}
    assert f"weft list --label array={number}" in done.err
    assert {job.id for job in real.jobs.list(label=[f"array={number}"])} == {job.id for job in jobs}
    assert done.err.count("code:") == 1, "it is sent once"
    assert [job.manifest.get("after") or [] for job in jobs] == [[], [], [{"job": jobs[0].id, "on": "ended"}]]


def test_a_manifest_that_the_server_refuses(real: Client, weft: Weft, project: Path) -> None:
    (project / "train.sh").write_text("#!/bin/sh\n#SBATCH --export=NONE,SLURM_PROCID=3\necho\n")
    done = weft("sbatch", "train.sh")
    assert (done.code, submitted(done.out)) == (ExitCode.INVALID, [])
    assert "SLURM_PROCID is reserved" in done.err
