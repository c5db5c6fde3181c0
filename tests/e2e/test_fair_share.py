"""One tenant can't starve another: a guarantee is taken back on a real engine, and the job that makes room loses
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.stack import Stack, eventually, follow_to, lines, manifest

from weft import Client

PASSWORD = "correct-horse-battery-7"


@pytest.fixture(scope="module")
def vision(stack: Stack) -> Client:
    """A member of another project, with four guaranteed GPUs of seven, and twice the weight of each other project."""
    others = len(stack.client.projects.list())
    stack.client.users.create("iris", PASSWORD)
    stack.weft("projects", "create", "vision", "--owner", "iris", "--allow-untrusted")
    shown = stack.weft("projects", "share", "vision", "--gpus", "4", "--weight", "2").stdout
    assert shown.split()[-6:] == ["2", f"{2 / (2 + others):.0%}", "0%", "4", "gpus", "yes"]
    return Client(stack.client.url, Client(stack.client.url).login("iris", PASSWORD, "vision"))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """The file that lets programs with $HOLD end."""
    go = tmp_path / "go"
    yield go
    go.touch()


def test_a_borrower_saves_makes_room_and_goes_on(stack: Stack, vision: Client, held: Path) -> None:
    go = held
    borrower = stack.train(manifest("exec python steps.py 20 0.1", gpus=6, cpus=0.1, env={"HOLD": str(go)}, retries=0))
    follow_to(borrower, "^step 5$")
    # The installation's own store, as the project has no other container.
    wanted = manifest("python count.py 1 0", gpus=4, cpus=0.1, data_stores=[])
    owner = vision.train(wanted, Path(__file__).parent / "programs").wait(timeout=900)
    assert owner.state == "COMPLETED"
    said = [event.message for event in borrower.events()]
    words = f"preempted by {owner.id} of project vision"
    assert any(message.startswith(f"{words}: up to") for message in said), said
    assert any("to save and make room" in event.message for event in owner.events())
    go.touch()
    borrower = borrower.wait(timeout=900)
    assert (borrower.state, borrower.failures) == ("COMPLETED", 0)
    assert [attempt.outcome for attempt in borrower.attempts] == ["INTERRUPTED", "SUCCEEDED"]
    starts = [line for line in lines(borrower) if line.startswith("attempt")]
    assert starts[0] == "attempt 1 starts at step 0"
    assert int(starts[1].rsplit(" ", 1)[1]) >= 5, "it goes on from the checkpoint that it saved"


def test_a_tenant_with_one_job_comes_before_a_tenant_with_many(stack: Stack, vision: Client, held: Path) -> None:
    busy = stack.train(manifest("exec python steps.py 2 0.1", gpus=7, cpus=0.1, env={"HOLD": str(held)}))
    follow_to(busy, "^step 0$")
    stack.client.projects.set_share("vision", weight=1)
    many = [stack.train(manifest("python count.py 1 0", gpus=7, cpus=0.1, priority=100)) for _ in range(3)]
    wanted = manifest("python count.py 1 0", gpus=7, cpus=0.1, priority=0, data_stores=[])
    first = vision.train(wanted, Path(__file__).parent / "programs")
    eventually(lambda: "queued behind" in many[0].refresh().reason, "a reason")
    assert "project default has used" in many[0].refresh().reason
    assert first.refresh().queue_position == 1
    held.touch()
    first = first.wait(timeout=900)
    ended = [job.wait(timeout=900) for job in many]
    assert first.started_at is not None
    assert all(job.started_at is not None and first.started_at < job.started_at for job in ended)
