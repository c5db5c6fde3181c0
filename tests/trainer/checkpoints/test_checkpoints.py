"""CHECKPOINT_DIR through stops, crashes and retries; most of it against the store itself, some with real agents."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.api_double import ApiDouble, Refused
from tests.trainer.conftest import Bucket, StartApi

from weft_trainer.checkpoints.checkpoints import Checkpoints
from weft_trainer.checkpoints.consistency import Settler
from weft_trainer.checkpoints.generations import Entry
from weft_trainer.checkpoints.scan import scan
from weft_trainer.errors import Fenced
from weft_trainer.spec import S3Location, parse_spec
from weft_trainer.stores.retry import Temporary
from weft_trainer.stores.s3 import S3Store

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
        return Checkpoints(
            lambda: store, learner, tmp_path / folder, tmp_path / f"{folder}-pins", fenced=lambda: fenced
        )

    return make


def tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def generations(bucket: Bucket, place: str) -> list[str]:
    return [key for key in bucket.keys(place + "/") if "generations/" in key]


def contents(bucket: Bucket, place: str) -> list[str]:
    return [key for key in bucket.keys(place + "/") if "files/" in key]


def paths(bucket: Bucket, generation: str) -> list[str]:
    return [entry["path"] for entry in json.loads(bucket.get(generation))["files"]]


def save(opened: Checkpoints) -> None:
    opened.finish(killed_at=None, patience=0)


def test_what_is_stored_comes_back(checkpoints: Open, tmp_path: Path) -> None:
    first = checkpoints("a")
    (tmp_path / "a/epoch-1").mkdir()
    (tmp_path / "a/epoch-1/model").write_text("weights 1")
    (tmp_path / "a/latest").symlink_to("epoch-1")
    (tmp_path / "a/stolen").symlink_to("/etc/passwd")
    os.utime(tmp_path / "a/epoch-1/model", (1000, 1000))
    save(first)
    again = checkpoints("b")
    assert again.restore(patience=0).files == 2
    assert tree(tmp_path / "b") == {"epoch-1/model": "weights 1"}
    assert (tmp_path / "b/latest").readlink() == Path("epoch-1")
    assert (tmp_path / "b/epoch-1/model").stat().st_mtime == 1000


def test_equal_contents_are_kept_once(checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/big").write_text("unchanged")
    (tmp_path / "a/state").write_text("1")
    save(opened)
    before = contents(bucket, place)
    (tmp_path / "a/state").write_text("22")
    (tmp_path / "a/copy").write_text("unchanged")
    save(opened)
    assert len(contents(bucket, place)) == 3, "the same content is kept once"
    newest = json.loads(bucket.get(f"{place}/{generations(bucket, place)[-1]}"))
    assert [entry["path"] for entry in newest["files"]] == ["big", "copy", "state"]
    assert set(before) < set(contents(bucket, place))
    save(opened)
    assert len(generations(bucket, place)) == 2, "nothing new, nothing published"


def test_keep_drops_what_only_old_generations_had(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/constant").write_text("constant")
    for epoch in range(4):
        (tmp_path / "a/model").write_text(f"epoch {epoch}")
        save(opened)
    assert generations(bucket, place) == ["generations/000001-000003.json", "generations/000001-000004.json"]
    assert len(contents(bucket, place)) == 3
    assert checkpoints("b").restore(patience=0).files == 2
    assert tree(tmp_path / "b") == {"constant": "constant", "model": "epoch 3"}


def test_what_a_killed_agent_had_sent_is_swept_up(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/model").write_text("1")
    save(opened)
    bucket.put(f"{place}/files/{_sha256(b'half')}", b"half")
    again = checkpoints("b")
    again.restore(patience=0)
    (tmp_path / "b/model").write_text("22")
    save(again)
    assert sorted(contents(bucket, place)) == sorted(f"files/{_sha256(text)}" for text in (b"1", b"22"))
    checkpoints("c").restore(patience=0)
    assert tree(tmp_path / "c") == {"model": "22"}


def test_deleted_files_stay_deleted(checkpoints: Open, tmp_path: Path) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/old").write_text("1")
    (tmp_path / "a/new").write_text("2")
    save(opened)
    (tmp_path / "a/old").unlink()
    save(opened)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"new": "2"}


def test_a_file_of_a_killed_writer_is_not_trusted(checkpoints: Open, tmp_path: Path) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/model").write_text("whole")
    save(opened)
    (tmp_path / "a/model").write_text("hal")
    (tmp_path / "a/other").write_text("hal")
    (tmp_path / "a/settled").mkdir()
    (tmp_path / "a/settled/shard").write_text("whole, too")
    os.utime(tmp_path / "a/settled/shard", (time.time() - 60, time.time() - 60))
    opened.finish(killed_at=time.time(), patience=0)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "whole", "settled/shard": "whole, too"}


def test_a_stop_distrusts_only_what_was_open_when_it_came(checkpoints: Open, tmp_path: Path) -> None:
    opened = checkpoints("a")
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
    opened.hurry()
    writer.terminate()
    writer.wait()
    opened.finish(killed_at=None, patience=0, cut_off=True)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"fresh": "whole"}


def test_every_rank_gets_all_files_and_stores_its_own(
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
    assert tree(tmp_path / "b0") == {"model": "model", "shard-1": "shard"}
    assert tree(tmp_path / "b1") == {"model": "model", "shard-1": "shard"}
    (tmp_path / "b1/shard-1").write_text("shard, later")
    save(again_second)
    mine = [generation for generation in generations(bucket, place) if generation.startswith("learner-2/")]
    newest = json.loads(bucket.get(f"{place}/{mine[-1]}"))
    assert [entry["path"] for entry in newest["files"]] == ["shard-1"], "rank 0's files are rank 0's to keep"
    (tmp_path / "b0/model").write_text("model, later")
    save(again_first)
    mine = [generation for generation in generations(bucket, place) if generation.startswith("generations/")]
    newest = json.loads(bucket.get(f"{place}/{mine[-1]}"))
    assert [entry["path"] for entry in newest["files"]] == ["model"]


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
    opened = checkpoints("a")
    (tmp_path / "a/model").write_text("first")
    save(opened)
    before = set(contents(bucket, place))
    (tmp_path / "a/model").write_text("second")
    save(opened)
    [newest] = set(contents(bucket, place)) - before
    if damage == "content":
        bucket.put(f"{place}/{newest}", b"sec0nd")
    elif damage == "list":
        bucket.put(f"{place}/{generations(bucket, place)[-1]}", b'{"files": [{"pa')
    else:
        bucket.client.delete_object(Bucket=bucket.location("")["container"], Key=f"{place}/{newest}")
    (tmp_path / "b").mkdir()
    again = checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "first"}
    assert again.files == 1


@pytest.fixture
def begin(tmp_path: Path, bucket: Bucket, place: str) -> Open:
    """``begin(folder, rank=0, learners=2)``: an agent of a job that begins with the checkpoint in ``place``."""

    def make(folder: str, rank: int = 0, learners: int = 2) -> Checkpoints:
        (tmp_path / folder).mkdir()
        own, other = (S3Store(S3Location(**bucket.location(where))) for where in (f"{place}-own", place))
        learner = parse_spec(spec("x", rank=rank, learners=learners, checkpoint={"every_seconds": 0.1, "keep": 2}))
        return Checkpoints(lambda: own, learner, tmp_path / folder, tmp_path / f"{folder}-pins", shared=lambda: other)

    return make


def test_a_job_begins_with_another_jobs_stored_files_and_leaves_them_as_they_are(
    checkpoints: Open, begin: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    first = checkpoints("a")
    (tmp_path / "a/vocabulary").write_text("words")
    for step in ("1", "2"):
        (tmp_path / "a/model").write_text(step)
        save(first)
    stored = bucket.keys(place + "/")
    child = begin("b")
    assert child.restore(patience=0).files == 2
    assert tree(tmp_path / "b") == {"model": "2", "vocabulary": "words"}
    assert child.untouched
    assert bucket.keys(f"{place}-own/") == [], "no copy"
    for step in ("3", "4", "5"):
        (tmp_path / "b/model").write_text(step)
        save(child)
    again = begin("c")
    again.restore(patience=0)
    assert tree(tmp_path / "c") == {"model": "5", "vocabulary": "words"}, "its own come first"
    assert len(generations(bucket, f"{place}-own")) == 2
    assert bucket.keys(place + "/") == stored


def test_a_job_that_changes_nothing_stores_what_it_began_with_at_its_end(
    checkpoints: Open, begin: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/model").write_text("1")
    first = checkpoints("a")
    save(first)
    child = begin("b")
    child.restore(patience=0)
    child.start()
    save(child)
    [stored] = generations(bucket, f"{place}-own")
    assert paths(bucket, f"{place}-own/{stored}") == ["model"]


def test_a_state_that_is_half_written_is_left_to_the_other_job(
    checkpoints: Open, begin: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    first = checkpoints("a")
    (tmp_path / "a/step").mkdir()
    (tmp_path / "a/step/one").write_text("1")
    (tmp_path / "a/step/two").write_text("1")
    save(first)
    child = begin("b")
    child.restore(patience=0)
    (tmp_path / "b/other").mkdir()
    (tmp_path / "b/other/file").write_text("x")
    (tmp_path / "b/step/one").write_text("2")
    (tmp_path / "b/step/.saving").touch()
    save(child)
    assert generations(bucket, f"{place}-own") == []
    (tmp_path / "b/step/.saving").unlink()
    save(child)
    begin("c").restore(patience=0)
    assert tree(tmp_path / "c") == {"step/one": "2", "step/two": "1", "other/file": "x"}


def test_learners_begin_with_the_files_of_all_learners_of_the_other_job(
    checkpoints: Open, begin: Open, tmp_path: Path
) -> None:
    savers = [checkpoints(f"a{rank}", rank) for rank in (0, 1)]
    for rank in (0, 1):
        (tmp_path / f"a{rank}/shard-{rank}").write_text(str(rank))
    for saver in savers:
        save(saver)
    everything = {"shard-0": "0", "shard-1": "1"}
    both = [begin(f"b{rank}", rank) for rank in (0, 1)]
    for opened in both:
        opened.restore(patience=0)
    assert tree(tmp_path / "b0") == tree(tmp_path / "b1") == everything
    # Learner 1 stores a state of its own, and the job dies: both go on from the state that both have.
    (tmp_path / "b0/shard-0").write_text("later")
    save(both[0])
    begin("c0", 0).restore(patience=0)
    assert tree(tmp_path / "c0") == everything
    (tmp_path / "b1/shard-1").write_text("later")
    save(both[1])


def test_one_learner_takes_over_the_files_of_several(
    checkpoints: Open, begin: Open, tmp_path: Path, bucket: Bucket, place: str
) -> None:
    for rank in (0, 1):
        saver = checkpoints(f"a{rank}", rank)
        (tmp_path / f"a{rank}/shard-{rank}").write_text(str(rank))
        save(saver)
    child = begin("b", learners=1)
    child.restore(patience=0)
    save(child)
    [stored] = generations(bucket, f"{place}-own")
    assert paths(bucket, f"{place}-own/{stored}") == ["shard-0", "shard-1"]


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
    opened = checkpoints("a", fenced=True)
    (tmp_path / "a/model").write_text("1")
    with pytest.raises(Fenced):
        save(opened)
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


class Writing:
    """Does something at each of a settler's pauses instead of sleeping."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.acts = list(acts)
        self.pauses: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        if self.acts:
            self.acts.pop(0)()
        return False


def replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text)
    draft.replace(path)


def settled(folder: Path, pause: Writing, stored: Collection[str] = ()) -> set[str]:
    """What a generation would have of ``folder``, with entries of ``stored`` from the one before."""
    last = {key: Entry(key) for key in stored}
    now, kept = Settler(folder, pause).settle(1.0, last).select(last)
    return {*now, *(f"last {key}" for key in kept)}


def test_a_folder_counts_when_it_has_come_to_rest(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("1")
    pause = Writing(
        lambda: (tmp_path / "model").write_text("22"), lambda: (tmp_path / "optimizer").write_text("2"), lambda: None
    )
    assert settled(tmp_path, pause, ["model"]) == {"model", "optimizer"}
    assert pause.pauses == [1.0, 1.0, 0.25]


def test_files_of_one_folder_are_never_of_two_moments(tmp_path: Path) -> None:
    for step in ("step-1", "step-2"):
        (tmp_path / step).mkdir()
        (tmp_path / step / "shard").write_text("1")
    (tmp_path / "latest").write_text("step-1")
    with (tmp_path / "step-2/index").open("w"):
        # psutil looks at children only: this process stands for a program by way of what it changes.
        again = [lambda n=n: (tmp_path / "step-2/index").write_text("x" * n) for n in range(20)]
        found = settled(tmp_path, Writing(*again), ["latest", "step-1/shard"])
    assert found == {"latest", "step-1/shard"}, "step-2 is being written, and was never whole"
    again = [lambda n=n: (tmp_path / "model").write_text("x" * n) for n in range(20)]
    found = settled(tmp_path, Writing(*again), ["latest", "step-1/shard"])
    assert found == {"last latest", "step-1/shard", "step-2/shard", "step-2/index"}


def test_a_single_file_that_is_replaced_all_the_time_is_complete(tmp_path: Path) -> None:
    replace(tmp_path / "state", "0")
    again = [lambda n=n: replace(tmp_path / "state", str(n)) for n in range(20)]
    pause = Writing(*again)
    assert settled(tmp_path, pause, ["state"]) == {"state"}
    replace(tmp_path / "other", "0")

    def replace_both(text: str) -> None:
        replace(tmp_path / "state", text)
        replace(tmp_path / "other", text)

    both = [partial(replace_both, str(n)) for n in range(20)]
    assert settled(tmp_path, Writing(*both), ["state"]) == {"last state"}


def test_what_a_draft_may_belong_to_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_trainer.checkpoints.consistency.being_written", lambda _: {"optimizer.tmp"})
    (tmp_path / "model").write_text("22")
    (tmp_path / "optimizer").write_text("1")
    (tmp_path / "step").mkdir()
    (tmp_path / "step/shard").write_text("1")
    stored = (tmp_path / "optimizer").stat().st_mtime_ns
    last = {"model": Entry("model"), "optimizer": Entry("optimizer", mtime_ns=stored)}
    for at, expected in ((stored - 10**9, set()), (stored - 3600 * 10**9, {"model", "optimizer"})):
        last["model"] = Entry("model", mtime_ns=at)
        now, _ = Settler(tmp_path, lambda _: False).settle(1.0, last).select(last)
        assert now.keys() == expected | {"step/shard"}, (
            "a constant beside a single file that is replaced is no part of it"
        )


def test_while_a_program_says_that_it_saves_nothing_counts(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("new")
    (tmp_path / "step").mkdir()
    (tmp_path / "step/shard").write_text("1")
    (tmp_path / "step/.saving").touch()
    assert settled(tmp_path, Writing(), ["model"]) == {"model"}
    (tmp_path / ".saving").touch()
    assert settled(tmp_path, Writing(), ["model"]) == {"last model"}
    assert settled(tmp_path, Writing()) == set()


def test_a_file_that_stays_open_holds_nobody_up_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("1")
    writer = subprocess.Popen(
        [sys.executable, "-c", f"f = open({str(tmp_path / 'events')!r}, 'w'); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    (tmp_path / "model").write_text("22")

    def pause(_: float) -> bool:
        time.sleep(0.01)
        return False

    settler = Settler(tmp_path, pause)
    last = {"model": Entry("model")}
    assert settler.settle(1.0, last).select(last)[0] == {}
    monkeypatch.setattr("weft_trainer.checkpoints.consistency._LOG_SECONDS", 0)
    assert settler.settle(1.0, last).select(last)[0].keys() == {"model"}
    writer.communicate(b"\n")


def test_what_a_killed_program_had_put_in_place_counts_if_it_is_all(checkpoints: Open, tmp_path: Path) -> None:
    opened = checkpoints("a")
    replace(tmp_path / "a/state", "1")
    save(opened)
    time.sleep(0.02)  # the kernel's clock for files is a coarse one
    draft = tmp_path / "a/state.tmp"
    draft.write_text("22")
    time.sleep(0.02)
    draft.replace(tmp_path / "a/state")
    opened.finish(killed_at=time.time(), patience=0)
    assert checkpoints("b").restore(patience=0).files == 1
    assert tree(tmp_path / "b") == {"state": "22"}


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_save_of_two_files_that_was_cut_short_is_not_stored(checkpoints: Open, tmp_path: Path, end: str) -> None:
    opened = checkpoints("a")
    for name in ("model", "optimizer"):
        replace(tmp_path / "a" / name, "1")
    save(opened)
    replace(tmp_path / "a/model", "22")
    if end == "killed":
        opened.finish(killed_at=time.time(), patience=0)
    else:
        opened._open_at_stop = {"optimizer.tmp"}
        opened.finish(killed_at=None, patience=0, cut_off=True)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "1", "optimizer": "1"}


def test_a_file_that_is_replaced_while_it_is_sent_is_stored_as_it_was(
    checkpoints: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = checkpoints("a")
    for name in ("model", "optimizer"):
        replace(tmp_path / "a" / name, "1")
    real = S3Store.put_file

    def put_file(self: S3Store, key: str, path: Path) -> None:
        for name in ("model", "optimizer"):
            replace(tmp_path / "a" / name, "22")
        real(self, key, path)

    monkeypatch.setattr(S3Store, "put_file", put_file)
    save(opened)
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "1", "optimizer": "1"}


def test_a_file_that_is_written_to_while_it_is_sent_is_not_stored(
    checkpoints: Open, tmp_path: Path, bucket: Bucket, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = checkpoints("a")
    for name in ("model", "optimizer"):
        (tmp_path / "a" / name).write_text("1")
    save(opened)
    real = S3Store.put_file

    def put_file(self: S3Store, key: str, path: Path) -> None:
        with (tmp_path / "a/model").open("a") as file:
            file.write("more")
        real(self, key, path)

    monkeypatch.setattr(S3Store, "put_file", put_file)
    (tmp_path / "a/optimizer").write_text("22")
    (tmp_path / "a/model").write_text("22")
    save(opened)
    assert len(contents(bucket, place)) == 1, "nothing of it is left"
    checkpoints("b").restore(patience=0)
    assert tree(tmp_path / "b") == {"model": "1", "optimizer": "1"}


def at(path: Path, text: str, moment: float) -> None:
    path.write_text(text)
    os.utime(path, (moment, moment))


def test_learners_begin_with_states_of_the_same_moment(
    checkpoints: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("weft_trainer.checkpoints.checkpoints.time.time", lambda: clock[0])
    ranks = [checkpoints("a0", 0), checkpoints("a1", 1)]
    for step, now in ((1, 1000.0), (2, 2000.0)):
        for rank, opened in enumerate(ranks):
            at(tmp_path / f"a{rank}/shard-{rank}", f"step {step}", now)
            clock[0] = now + 10 + rank
            if not (step == 2 and rank == 1):  # learner 2 is killed before it could
                save(opened)
    again = checkpoints("b0", 0)
    again.restore(patience=0)
    assert tree(tmp_path / "b0") == {"shard-0": "step 1", "shard-1": "step 1"}
    checkpoints("b1", 1).restore(patience=0)
    assert tree(tmp_path / "b1") == tree(tmp_path / "b0")
    # It goes on from there, and what was abandoned does not come back.
    clock[0] = 3010.0
    at(tmp_path / "b0/shard-0", "step 2 again", 3000.0)
    save(again)
    checkpoints("c0", 0).restore(patience=0)
    assert tree(tmp_path / "c0") == {"shard-0": "step 1", "shard-1": "step 1"}
    ranks[1] = checkpoints("b1", 1)
    ranks[1].restore(patience=0)
    clock[0] = 3011.0
    at(tmp_path / "b1/shard-1", "step 2 again", 3000.0)
    save(ranks[1])
    checkpoints("d0", 0).restore(patience=0)
    assert tree(tmp_path / "d0") == {"shard-0": "step 2 again", "shard-1": "step 2 again"}


def test_a_learner_that_writes_once_does_not_hold_the_others_back(
    checkpoints: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1010.0]
    monkeypatch.setattr("weft_trainer.checkpoints.checkpoints.time.time", lambda: clock[0])
    first, second = checkpoints("a0", 0), checkpoints("a1", 1)
    at(tmp_path / "a1/config", "constant", 1000.0)
    save(second)
    for step in (1, 2):
        clock[0] += 1000
        at(tmp_path / "a0/model", f"step {step}", clock[0] - 10)
        save(first)
        clock[0] += 1
        save(second)
    checkpoints("b0", 0).restore(patience=0)
    assert tree(tmp_path / "b0") == {"model": "step 2", "config": "constant"}


def test_a_store_that_is_away_is_no_reason_to_begin_with_something_older(
    checkpoints: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = checkpoints("a")
    (tmp_path / "a/model").write_text("1")
    save(opened)

    def fetch(self: S3Store, key: str, path: Path) -> None:
        raise Temporary("the store answers 503")

    monkeypatch.setattr(S3Store, "fetch", fetch)
    with pytest.raises(Temporary):
        checkpoints("b").restore(patience=0)


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
    assert retry.learners[0].phases[:2] == ["STARTED", "PROCESSING"]
    [message] = retry.learners[0].messages
    assert re.fullmatch(r"1 file of the checkpoint of [0-9: -]+ UTC by attempt 1", message)


def test_a_checkpoint_that_cannot_be_stored_is_said_in_the_stops_reason(start_api: StartApi, launch: Launch) -> None:
    api = start_api("trap 'echo 1 > $CHECKPOINT_DIR/last; exit' TERM; echo ready; while true; do sleep 0.05; done")
    agent = launch(api)
    api.wait_for(lambda: "ready" in api.learners[0].lines)
    api.refuse["objects"] = Refused(403, "forbidden", "no store for you")
    agent.terminate()
    assert agent.wait() == 143
    report = api.learners[0].exit
    assert report is not None
    refused = "the API refused 'objects': no store for you (403)"
    assert report["reason"] == (
        f"stopped (the last checkpoint was not stored: {refused}) (partial results were not stored: {refused})"
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
