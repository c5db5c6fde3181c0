"""CHECKPOINT_DIR through stops, crashes and retries; most of it against the store itself, some with real agents."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.api_double import ApiDouble, Refused
from tests.trainer.conftest import Bucket, StartApi

from weft_trainer.checkpoints import Checkpoints
from weft_trainer.errors import Fenced
from weft_trainer.s3 import S3Store
from weft_trainer.scan import complete, scan
from weft_trainer.spec import S3Location, parse_spec

Open = Callable[..., Checkpoints]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"checkpoints/{request.node.name}"


@pytest.fixture
def checkpoints(tmp_path: Path, bucket: Bucket, place: str) -> Open:
    """``checkpoints(folder, rank=0)``: an agent's, with CHECKPOINT_DIR ``tmp_path/folder``."""

    def make(folder: str, rank: int = 0, fenced: bool = False) -> Checkpoints:
        (tmp_path / folder).mkdir(exist_ok=True)
        learner = parse_spec(spec("x", rank=rank, learners=2, checkpoint={"every_seconds": 1, "keep": 2}))
        store = S3Store(S3Location(**bucket.location(place)))
        return Checkpoints(lambda: store, learner, tmp_path / folder, fenced=lambda: fenced)

    return make


def tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def generations(bucket: Bucket, place: str) -> list[str]:
    return [key for key in bucket.keys(place + "/") if "generations/" in key]


def contents(bucket: Bucket, place: str) -> list[str]:
    return [key for key in bucket.keys(place + "/") if "files/" in key]


def save(one: Checkpoints) -> None:
    one.finish(killed_at=None, patience=0)


def test_what_is_stored_comes_back(checkpoints: Open, tmp_path: Path) -> None:
    first = checkpoints("a")
    (tmp_path / "a/epoch-1").mkdir()
    (tmp_path / "a/epoch-1/model").write_text("weights 1")
    (tmp_path / "a/latest").symlink_to("epoch-1")
    (tmp_path / "a/stolen").symlink_to("/etc/passwd")
    os.utime(tmp_path / "a/epoch-1/model", (1000, 1000))
    save(first)
    again = checkpoints("b")
    assert again.restore(patience=0) == 2
    assert tree(tmp_path / "b") == {"epoch-1/model": "weights 1"}
    assert (tmp_path / "b/latest").readlink() == Path("epoch-1")
    assert (tmp_path / "b/epoch-1/model").stat().st_mtime == 1000


def test_equal_contents_are_kept_once(checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str) -> None:
    one = checkpoints("a")
    (tmp_path / "a/big").write_text("unchanged")
    (tmp_path / "a/state").write_text("1")
    save(one)
    before = contents(bucket, place)
    (tmp_path / "a/state").write_text("22")
    (tmp_path / "a/copy").write_text("unchanged")
    save(one)
    assert len(contents(bucket, place)) == 3, "the same content is kept once"
    newest = json.loads(bucket.get(f"{place}/{generations(bucket, place)[-1]}"))
    assert [entry["path"] for entry in newest["files"]] == ["big", "copy", "state"]
    assert set(before) < set(contents(bucket, place))
    save(one)
    assert len(generations(bucket, place)) == 2, "nothing new, nothing published"


def test_keep_drops_what_only_old_generations_had(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    one = checkpoints("a")
    (tmp_path / "a/constant").write_text("constant")
    for epoch in range(4):
        (tmp_path / "a/model").write_text(f"epoch {epoch}")
        save(one)
    assert generations(bucket, place) == ["generations/000001-000003.json", "generations/000001-000004.json"]
    assert len(contents(bucket, place)) == 3
    assert checkpoints("b").restore(patience=0) == 2
    assert tree(tmp_path / "b") == {"constant": "constant", "model": "epoch 3"}


def test_deleted_files_stay_deleted(checkpoints: Open, tmp_path: Path) -> None:
    one = checkpoints("a")
    (tmp_path / "a/old").write_text("1")
    (tmp_path / "a/new").write_text("2")
    save(one)
    (tmp_path / "a/old").unlink()
    save(one)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"new": "2"}


def test_a_file_of_a_killed_writer_is_not_trusted(checkpoints: Open, tmp_path: Path) -> None:
    one = checkpoints("a")
    (tmp_path / "a/model").write_text("whole")
    save(one)
    (tmp_path / "a/model").write_text("hal")
    (tmp_path / "a/other").write_text("hal")
    (tmp_path / "a/settled").write_text("whole, too")
    os.utime(tmp_path / "a/settled", (time.time() - 60, time.time() - 60))
    one.finish(killed_at=time.time(), patience=0)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "whole", "settled": "whole, too"}


def test_a_stop_distrusts_only_what_was_open_when_it_came(checkpoints: Open, tmp_path: Path) -> None:
    one = checkpoints("a")
    (tmp_path / "a/fresh").write_text("whole")
    writer = subprocess.Popen(  # a program that does not handle SIGTERM, in the middle of a write
        [
            sys.executable,
            "-c",
            f"f = open({str(tmp_path / 'a/half')!r}, 'w'); f.write('ha'); f.flush(); print(); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    one.hurry()
    writer.terminate()
    writer.wait()
    one.finish(killed_at=None, patience=0, cut_off=True)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"fresh": "whole"}


def test_every_rank_gets_rank_0s_files_and_its_own(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    first, second = checkpoints("a0", 0), checkpoints("a1", 1)
    (tmp_path / "a0/model").write_text("model")
    save(first)
    (tmp_path / "a1/shard-1").write_text("shard")
    save(second)
    again_first, again_second = checkpoints("b0", 0), checkpoints("b1", 1)
    again_first.restore(patience=0)
    again_second.restore(patience=0)
    assert tree(tmp_path / "b0") == {"model": "model"}
    assert tree(tmp_path / "b1") == {"model": "model", "shard-1": "shard"}
    (tmp_path / "b1/shard-1").write_text("shard, later")
    save(again_second)
    mine = [one for one in generations(bucket, place) if one.startswith("learner-2/")]
    newest = json.loads(bucket.get(f"{place}/{mine[-1]}"))
    assert [entry["path"] for entry in newest["files"]] == ["shard-1"], "rank 0's files are rank 0's to keep"


def test_a_rank_that_wrote_nothing_stores_nothing(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    first = checkpoints("a0", 0)
    (tmp_path / "a0/model").write_text("model")
    save(first)
    second = checkpoints("a1", 1)
    second.restore(patience=0)
    save(second)
    assert not [key for key in bucket.keys(place + "/") if key.startswith("learner-2/")]


@pytest.mark.parametrize("damage", ["content", "content gone", "list"])
def test_a_damaged_generation_makes_room_for_the_one_before(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str, damage: str
) -> None:
    one = checkpoints("a")
    (tmp_path / "a/model").write_text("first")
    save(one)
    before = set(contents(bucket, place))
    (tmp_path / "a/model").write_text("second")
    save(one)
    [newest] = set(contents(bucket, place)) - before
    if damage == "content":
        bucket.put(f"{place}/{newest}", b"sec0nd")
    elif damage == "list":
        bucket.put(f"{place}/{generations(bucket, place)[-1]}", b'{"files": [{"pa')
    else:
        bucket.client.delete_object(Bucket=bucket.location("")["container"], Key=f"{place}/{newest}")
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "first"}


def test_an_older_attempt_never_supersedes_a_newer_one(checkpoints: Open, tmp_path: Path) -> None:
    older = checkpoints("a")
    (tmp_path / "a/model").write_text("1")
    save(older)
    newer = checkpoints("b")
    newer.restore(patience=0)
    (tmp_path / "b/model").write_text("newer")
    save(newer)
    for step in range(3):
        (tmp_path / "a/model").write_text(f"stale {step}")
        save(older)
    checkpoints("c").restore(patience=0)
    assert tree(tmp_path / "c") == {"model": "newer"}


def test_a_fenced_agent_publishes_nothing(checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str) -> None:
    one = checkpoints("a", fenced=True)
    (tmp_path / "a/model").write_text("1")
    with pytest.raises(Fenced):
        save(one)
    assert bucket.keys(place + "/") == []


def test_temporary_names_are_left_out(tmp_path: Path) -> None:
    names = [
        "model.pt",
        ".metadata",
        "ckpt-1.index",
        "model.pt.tmp",
        "x.part",
        "model~",
        "ckpt-1.data-00000-of-00001.tempstate123",
        "step.orbax-checkpoint-tmp-7",
        "tmpab12_xyz",
    ]
    for name in names:
        (tmp_path / name).write_text("x")
    assert sorted(scan(tmp_path)) == [".metadata", "ckpt-1.index", "model.pt"]


def test_complete_files_are_those_that_nobody_writes(tmp_path: Path) -> None:
    for name in ("settled", "growing", "replaced", "open"):
        (tmp_path / name).write_text("x")
    before = scan(tmp_path)
    with (tmp_path / "growing").open("a") as file:
        file.write("y")
    (tmp_path / "new").write_text("x")
    (tmp_path / "new2").write_text("x")
    (tmp_path / "new2").rename(tmp_path / "replaced")
    assert sorted(complete(before, scan(tmp_path), ["open"])) == ["settled"]


def published(api: ApiDouble) -> list[list[str]]:
    keys = sorted(key for key in api.objects if key.startswith("checkpoints/generations/"))
    return [[entry["path"] for entry in json.loads(api.objects[key])["files"]] for key in keys]


def test_checkpoints_are_stored_while_training_and_restored_by_the_next_attempt(
    start_api: StartApi, launch: Launch
) -> None:
    api = start_api(
        "cd $CHECKPOINT_DIR; exec 3> unfinished; echo half >&3; echo 1 > epoch; echo saved; sleep 1000",
        checkpoint={"every_seconds": 0.1, "keep": 2},
    )
    agent = launch(api)
    api.wait_for(lambda: bool(published(api)))
    assert published(api) == [["epoch"]], "a file that is open for writing is not complete"
    agent.kill()
    agent.process.wait()

    retry = start_api("cd $CHECKPOINT_DIR; ls; cat epoch", attempt=2)
    retry.objects = api.objects
    assert launch(retry, folder="attempt-2").wait() == 0
    assert retry.learners[0].lines == ["epoch", "1"]
    assert retry.learners[0].phases[:3] == ["STARTED", "DOWNLOADING", "PROCESSING"]
    assert retry.learners[0].messages == ["1 file of the last checkpoint"]


def test_a_checkpoint_that_cannot_be_stored_is_said_in_the_stops_reason(start_api: StartApi, launch: Launch) -> None:
    api = start_api("trap 'echo 1 > $CHECKPOINT_DIR/last; exit' TERM; echo ready; while true; do sleep 0.05; done")
    agent = launch(api)
    api.wait_for(lambda: "ready" in api.learners[0].lines)
    api.refuse["objects"] = Refused(403, "forbidden", "no store for you")
    agent.terminate()
    assert agent.wait() == 143
    report = api.learners[0].exit
    assert report is not None
    assert report["reason"] == (
        "stopped (the last checkpoint was not stored: the API refused 'objects': no store for you (403))"
    )


def test_unchanged_files_are_not_sent_again(start_api: StartApi, launch: Launch) -> None:
    api = start_api("cd $CHECKPOINT_DIR; ls; echo 2 > state")
    api.objects |= {
        "checkpoints/files/" + _sha256(b"big"): b"big",
        "checkpoints/generations/000001-000001.json": json.dumps(
            {"files": [{"path": "big", "size": 3, "sha256": _sha256(b"big"), "mtime_ns": 10**18}]}
        ).encode(),
    }
    api.specs[0]["attempt"] = 2
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["big"]
    assert published(api) == [["big"], ["big", "state"]]
    assert [key for key in api.stored if key.startswith("checkpoints/files/")] == [
        "checkpoints/files/" + _sha256(b"2\n")
    ]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
