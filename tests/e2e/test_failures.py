"""Programs that fail, and stores that do: each with a reason that its user can act on, and nothing left behind."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from tests.e2e.stack import Stack, eventually, lines, manifest

import weft
from weft_workers.supervision.cgroups import MemoryGroup


@pytest.fixture(autouse=True)
def _no_learner_is_left(stack: Stack) -> Any:
    yield
    eventually(lambda: stack.learners() == [], "learners gone")


def failed(stack: Stack, wanted: dict[str, Any]) -> weft.Job:
    job = stack.train(wanted).wait(timeout=900, check=False)
    assert job.state == "FAILED", job
    assert "Traceback" not in job.reason
    return job


def test_a_command_that_is_not_found(stack: Stack) -> None:
    job = failed(stack, manifest("pyhton train.py"))
    assert "command not found: pyhton" in job.reason
    assert job.error_code == "C201"


def test_a_command_that_exits_with_3(stack: Stack) -> None:
    job = failed(stack, manifest("echo something went wrong; exit 3"))
    assert "exit code 3" in job.reason
    assert "something went wrong" in job.reason
    assert job.attempts[-1].exit_code == 3


def test_a_failed_learner_stays_for_a_look_inside(stack: Stack) -> None:
    """And its job fails by the first failure when the user is done."""
    command = "echo $LEARNER_ID > left-behind; [ $LEARNER_ID = 2 ] && exit 3; exec sleep 3600"
    job = stack.train(manifest(command, learners=2, keep_on_failure="30m"))
    condition = eventually(lambda: job.refresh().condition, "that the learner is kept")
    assert condition.startswith("kept after a failure until ")
    assert f"weft shell {job.id} --learner 2 looks inside" in condition
    assert job.refresh().state == "PROCESSING"
    assert stack.weft("exec", job.id, "--learner", "2", "--", "cat", "left-behind").stdout == "2\n"
    job.halt()
    ended = job.wait(timeout=900, check=False)
    assert (ended.state, ended.attempts[-1].exit_code) == ("FAILED", 3)
    assert ended.reason.startswith("learner 2: exit code 3")
    assert ended.condition is None


def test_a_learner_that_the_kernel_kills_for_memory(stack: Stack) -> None:
    group = MemoryGroup.make(f"weft-test-{os.getpid()}", 1 << 30)
    if group is None:
        pytest.skip("NOT RUN: this machine lets us make no memory control group, so its kernel limits nothing for us")
    group.remove()
    job = failed(stack, manifest("python hog.py", memory="128 MiB"))
    assert "was killed: out of memory (limit 128 MiB)" in job.reason


def test_a_gpu_without_memory_left_is_reported_as_that(stack: Stack) -> None:
    """PyTorch's own exception, raised by hand; tests/gpu has the real one of a GPU."""
    said = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 is full."
    wanted = manifest(f"python -c 'import torch; raise torch.OutOfMemoryError(\"{said}\")'", memory="2 GiB")
    wanted["framework"] |= {"name": "pytorch", "version": "2.13", "launcher": "none"}
    job = stack.train(wanted).wait(timeout=900, check=False)
    told = "the GPU ran out of memory (exit code 1): Tried to allocate 20.00 GiB; a smaller batch, "
    assert job.reason.startswith(f"learner 1: {told}")
    assert said in job.reason, "the end of the log is no part of the reason"


def test_one_of_two_dies_and_the_gang_is_retried_from_its_checkpoint(stack: Stack) -> None:
    wanted = manifest("exec python steps.py 20 0.1 8", learners=2, retries=1, checkpoint={"every": "1s"})
    job = stack.train(wanted).wait(timeout=900)
    assert [attempt.outcome for attempt in job.attempts] == ["FAILED", "SUCCEEDED"]
    assert "learner 2" in job.attempts[0].reason
    assert "SIGKILL" in job.attempts[0].reason
    starts = [line for line in lines(job, 1) if line.startswith("attempt")]
    assert starts[0] == "attempt 1 starts at step 0"
    assert int(starts[1].rsplit(" ", 1)[1]) >= 5, "the checkpoint was not restored"


def test_one_of_two_dies_and_without_retries_the_job_says_which(stack: Stack) -> None:
    job = failed(stack, manifest('[ "$LEARNER_ID" = 1 ] && sleep 600; echo last words; exit 7', learners=2))
    assert "learner 2" in job.reason
    assert "exit code 7" in job.reason
    assert "last words" in job.reason


def test_a_container_that_does_not_exist_is_refused_at_submit(stack: Stack) -> None:
    store = {"id": "s3", "datastore": "default", "training_data": {"container": "no-such-container"}}
    with pytest.raises(weft.errors.InvalidManifest, match="no-such-container"):
        stack.train(manifest("true", data_stores=[store]))


def own_store(stack: Stack, **changes: str) -> list[dict[str, Any]]:
    endpoint = next(store for store in stack.client.datastores.list() if store.name == "default").endpoint
    connection = {"auth_url": endpoint, "user_name": "nobody", "password": "wr0ng-pass"} | changes
    return [{"id": "mine", "type": "s3", "connection": connection, "training_data": {"container": "results"}}]


def test_wrong_s3_credentials_are_refused_at_submit_and_never_shown(stack: Stack) -> None:
    with pytest.raises(weft.errors.InvalidManifest) as caught:
        stack.train(manifest("true", data_stores=own_store(stack)))
    assert "credentials" in str(caught.value)
    assert "wr0ng-pass" not in str(caught.value)


def test_an_s3_that_is_down_fails_the_job_with_its_name(stack: Stack) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        job = failed(stack, manifest("true", data_stores=own_store(stack, auth_url=url)))
    assert url in job.reason
    assert any(event.kind == "warning" and url in event.message for event in job.events())
