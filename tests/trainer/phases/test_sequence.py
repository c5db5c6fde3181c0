"""A learner from its start grant to its exit report, without any fault."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import TOKEN
from tests.trainer.conftest import StartApi

from weft_trainer.config import STUB


def test_plain_command(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "echo out; echo err >&2; echo model > $RESULT_DIR/model.bin; mkdir $RESULT_DIR/tb; echo e > $RESULT_DIR/tb/ev"
    )
    assert launch(api).wait() == 0
    learner = api.learners[0]
    assert learner.phases == ["STARTED", "PROCESSING", "STORING", "EXITED"]
    assert learner.lines == ["out", "err"]
    assert learner.exit is not None
    assert (learner.exit["exit_code"], learner.exit["reason"]) == (0, "")
    assert learner.exit["last_lines"] == ["out", "err"]
    assert api.objects["results/model.bin"] == b"model\n"
    assert api.objects["results/tb/ev"] == b"e\n"
    assert api.objects["results/learner-1/training-log.txt"] == b"out\nerr\n"
    report = json.loads(api.objects["exit-0/exit.json"])
    assert (report["rank"], report["exit_code"], report["reason"]) == (0, 0, "")
    assert api.problems == []


def test_ffdl_environment(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    program = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
    api = start_api(
        f'python -c "{program}"', learners=2, env={"LR": "0.1", "PYTHONPATH": "/lib/extra", "RANK": "x"}, gpus=0
    )
    agents = [launch(api, rank, WEFT_SHARED_DIR=str(tmp_path / "shared")) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0]
    first, second = (json.loads(api.learners[rank].lines[0]) for rank in range(2))
    assert (first["LEARNER_ID"], second["LEARNER_ID"], first["NUM_LEARNERS"], first["GPU_COUNT"]) == (
        "1",
        "2",
        "2",
        "0",
    )
    assert (first["TRAINING_ID"], first["TRAINING_JOB"], first["WEFT_ATTEMPT"]) == ("job-1", "a job", "1")
    assert first["TRAINING_COMMAND"] == api.specs[0]["command"]
    assert first["cwd"] == first["MODEL_DIR"]
    assert first["PYTHONPATH"].split(":")[0] == first["MODEL_DIR"]
    assert first["PYTHONPATH"].split(":")[2:] == ["/lib/extra", str(STUB)]
    assert Path(first["RESULT_DIR"]).parent == Path(first["RESULT_BUCKET_DIR"])
    assert first["JOB_STATE_DIR"] == second["JOB_STATE_DIR"]
    assert first["LOG_DIR"] != second["LOG_DIR"]
    assert (first["RANK"], second["RANK"], first["WORLD_SIZE"]) == ("0", "1", "2")
    assert first["MASTER_ADDR"] == "127.0.0.1"
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["OMP_NUM_THREADS"] == "2"
    assert first["ACCELERATE_USE_CPU"] == "true"
    assert first["LR"] == "0.1"
    assert "PRETRAINED_DIR" not in first


def test_the_token_is_not_for_user_code(start_api: StartApi, launch: Launch) -> None:
    api = start_api("env")
    launch(api).wait()
    assert any(line.startswith("WEFT_RANK=") for line in api.learners[0].lines)
    assert not any(TOKEN in line for line in api.learners[0].lines)


def test_the_token_is_not_to_be_found_in_proc(start_api: StartApi, launch: Launch) -> None:
    # With all its capabilities root may read every process's environment; without, it is a user like others.
    drop = "setpriv --bounding-set=-all " if os.geteuid() == 0 else ""
    api = start_api(f"{drop}cat /proc/self/environ | tr '\\0' '\\n' | grep ^LEARNER_ID; {drop}cat /proc/$PPID/environ")
    launch(api).wait()
    assert api.learners[0].lines[0] == "LEARNER_ID=1", "a process of the user's own can be read"
    assert "Permission denied" in api.learners[0].lines[1]


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("trian.py --epochs 2", 127, "command not found: trian.py"),
        ("cd / && ./no-such-program", 127, "command not found: ./no-such-program"),
        ("/etc/passwd", 126, "command not executable: /etc/passwd"),
        ("echo before; exit 3", 3, "exit code 3"),
        ("kill -9 $$", 137, "killed by signal 9 (SIGKILL)"),
        ("kill -SEGV $$", 139, "killed by signal 11 (SIGSEGV)"),
        ("bash -c 'kill -9 $$'; exit $?", 137, "exit code 137 (signal 9, SIGKILL)"),
    ],
)
def test_failing_commands(start_api: StartApi, launch: Launch, command: str, code: int, reason: str) -> None:
    api = start_api(f"echo half > $RESULT_DIR/half.txt; {command}")
    assert launch(api).wait() == code
    learner = api.learners[0]
    assert learner.exit is not None
    assert (learner.exit["exit_code"], learner.exit["reason"]) == (code, reason)
    assert learner.storing == [code]
    assert api.objects["results/half.txt"] == b"half\n", "partial results are stored"
    assert json.loads(api.objects["exit-0/exit.json"])["reason"] == reason


def test_a_gang_starts_together_and_rank_0_stores_last(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "echo $LEARNER_ID > $RESULT_DIR/who.txt; echo $LEARNER_ID > $RESULT_DIR/only-$LEARNER_ID.txt", learners=2
    )
    first = launch(api, 0)
    api.wait_for(lambda: api.learners[0].address is not None)
    assert api.learners[0].phase == "STARTED", "waits for its peer"
    second = launch(api, 1)
    assert [first.wait(), second.wait()] == [0, 0]
    assert api.objects["results/who.txt"] == b"1\n", "rank 0's files win"
    assert api.objects["results/only-2.txt"] == b"2\n"
    assert sorted(key for key in api.objects if key.endswith("training-log.txt")) == [
        "results/learner-1/training-log.txt",
        "results/learner-2/training-log.txt",
    ]


def test_links_in_results_lead_only_to_the_learners_own_files(
    start_api: StartApi, launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("not the learner's")
    api = start_api(
        "cd $RESULT_DIR; echo 1 > a; ln -s a latest; ln -s nothing broken; mkfifo pipe;"
        f"ln -s {tmp_path}/private stolen; ln -s {tmp_path} everything"
    )
    assert launch(api).wait() == 0
    stored = {key.removeprefix("results/") for key in api.objects if key.startswith("results/")}
    assert stored == {"a", "latest", "learner-1/training-log.txt", "weft-manifest.json"}


def test_background_processes_end_with_the_command(start_api: StartApi, launch: Launch) -> None:
    ours = [f"1000.{os.getpid()}", f"1001.{os.getpid()}"]  # nobody else's
    api = start_api(f"sleep {ours[0]} & setsid sleep {ours[1]} & echo done")
    agent = launch(api)
    assert agent.wait() == 0
    assert api.learners[0].lines == ["done"]
    assert not [command for command in running() if command[:1] == ["sleep"] and command[1:] in ([ours[0]], [ours[1]])]


def running() -> list[list[str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode().split("\0")[:-1])
        except OSError:
            continue
    return found


def test_heartbeats_carry_system_metrics(start_api: StartApi, launch: Launch) -> None:
    api = start_api("python -c 'x = bytearray(50_000_000); import sys; sys.stdin.read()'; sleep 1000")
    agent = launch(api)
    api.wait_for(lambda: any(beat["system"]["memory_bytes"] > 0 for beat in api.learners[0].heartbeats))
    api.stop = {"stop": True, "grace_seconds": 0}
    assert agent.wait() == 128 + signal.SIGTERM


def test_a_launcher_that_the_image_lacks(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo x", launcher="mpi")
    assert launch(api).wait() == 1
    assert api.learners[0].exit is not None
    assert api.learners[0].exit["reason"].startswith("launcher 'mpi' is not one")
    assert api.learners[0].lines == []
