"""TensorBoard's event files: those of the real writers, and changes of files while they are written."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.environments import FIRST_RUN, python_of
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

from weft_trainer.metrics import discovery
from weft_trainer.metrics.discovery import Discovery
from weft_trainer.metrics.events import Broken, Event, EventFile, parse_event
from weft_trainer.metrics.records import Record
from weft_trainer.metrics.shipper import MetricShipper
from weft_trainer.metrics.tensorboard import EventFiles, is_event_file

TORCH = """
import os
import numpy
import torch
from torch.utils.tensorboard import SummaryWriter
from weft_trainer import log_metrics
log_metrics(tensor=torch.tensor([2.5], requires_grad=True), array=numpy.float32(1.5), yes=numpy.bool_(True))
with SummaryWriter(os.environ["LOG_DIR"] + "/tb/train") as writer:
    writer.add_text("notes", "hello")
    writer.add_hparams({"lr": 0.1}, {"best": 0.75}, run_name="h")
    for step in range(3):
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_scalar("accuracy", 0.1 * step, step, new_style=True)
        writer.add_scalar("exact", 2.0**-30, step, new_style=True, double_precision=True)
        writer.add_scalars("both", {"a": step, "b": -step}, step)
with SummaryWriter(os.environ["RESULT_DIR"]) as writer:
    writer.add_scalar("top", float("nan"), -1)
"""

KERAS = """
import json
import os
import keras
import tensorflow as tf
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
board = keras.callbacks.TensorBoard(os.environ["LOG_DIR"], update_freq=1, histogram_freq=1)
x = tf.random.normal((8, 2))
history = model.fit(x, x[:, :1], epochs=2, batch_size=4, validation_split=0.5, verbose=0, callbacks=[board]).history
print(json.dumps([history["loss"], history["val_mae"]]))
with tf.summary.create_file_writer(os.environ["RESULT_DIR"] + "/own").as_default():
    for step in range(3):
        tf.summary.scalar("half", tf.constant(step / 2, tf.float16), step)
        tf.summary.scalar("count", tf.constant(step, tf.int64), step)
        tf.summary.text("words", "hello", step)
"""


@pytest.mark.timeout(FIRST_RUN)
def test_pytorchs_writer(start_api: StartApi, launch: Launch) -> None:
    api = start_api(f"cat > train.py <<'EOF'\n{TORCH}\nEOF\npython train.py")
    assert launch(api, python=str(python_of("pytorch:2.13"))).wait(600) == 0
    learner = api.learners[0]
    assert learner.points("loss", "tb/train") == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert learner.points("accuracy", "tb/train") == [(0, 0), (1, 0.1), (2, 0.2)]
    assert learner.points("exact", "tb/train") == [(step, 2.0**-30) for step in range(3)]
    assert learner.points("both", "tb/train/both_b") == [(0, 0), (1, -1), (2, -2)]
    assert learner.points("best", "tb/train/h") == [(0, 0.75)]
    assert learner.points("top") == [(-1, "nan")]
    assert [learner.points(name) for name in ("tensor", "array", "yes")] == [[(None, 2.5)], [(None, 1.5)], [(None, 1)]]
    user = {name for record in learner.records if record["kind"] == "user" for name in record["values"]}
    assert user == {"loss", "accuracy", "exact", "both", "best", "top", "tensor", "array", "yes"}


@pytest.mark.timeout(FIRST_RUN)
def test_keras_callback_and_tensorflows_writer(start_api: StartApi, launch: Launch) -> None:
    api = start_api(f"cat > train.py <<'EOF'\n{KERAS}\nEOF\npython train.py", env={"TF_CPP_MIN_LOG_LEVEL": "3"})
    assert launch(api, python=str(python_of("tensorflow:2.21"))).wait(600) == 0
    learner = api.learners[0]
    losses, errors = json.loads(learner.lines[-1])
    assert learner.points("epoch_loss", "train") == [(0, pytest.approx(losses[0])), (1, pytest.approx(losses[1]))]
    assert learner.points("epoch_mae", "validation") == [(0, pytest.approx(errors[0])), (1, pytest.approx(errors[1]))]
    assert len(learner.points("batch_loss", "train")) == 2
    assert learner.points("half", "own") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert learner.points("count", "own") == [(0, 0), (1, 1), (2, 2)]
    names = {name for record in learner.records if record["group"] == "own" for name in record["values"]}
    assert names == {"half", "count"}


def test_a_folder_that_all_learners_see_is_one_learners_to_read(
    start_api: StartApi, launch: Launch, tmp_path: Path
) -> None:
    file = Path(__file__).parents[2] / "e2e/programs/events.out.tfevents.torch"
    api = start_api(
        f"mkdir -p $JOB_STATE_DIR/tb/all $LOG_DIR/own; cp {file} $LOG_DIR/own; "
        f"if [ $LEARNER_ID = 2 ]; then cp {file} $JOB_STATE_DIR/tb/all; fi; "
        "touch $JOB_STATE_DIR/done$LEARNER_ID; while ! [ -e $JOB_STATE_DIR/done2 ]; do sleep 0.02; done",
        learners=2,
        evaluation_metrics={"type": "tensorboard", "path": "$JOB_STATE_DIR/tb"},
    )
    agents = [launch(api, rank, WEFT_SHARED_DIR=str(tmp_path / "shared")) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0]
    assert [len(api.learners[rank].points("loss", "own")) for rank in range(2)] == [3, 3]
    assert [len(api.learners[rank].points("loss", "all")) for rank in range(2)] == [3, 0]


def test_a_program_that_names_no_folder(start_api: StartApi, launch: Launch) -> None:
    file = Path(__file__).parents[2] / "e2e/programs/events.out.tfevents.torch"
    api = start_api(f"mkdir -p runs/Nov23_12-00-00_host; cp {file} runs/*/; cp -r runs $RESULT_DIR")
    assert launch(api).wait() == 0
    assert api.learners[0].points("loss") == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert {record["group"] for record in api.learners[0].records if record["kind"] == "user"} == {""}


def test_a_metric_that_the_program_logs_itself_is_not_doubled(start_api: StartApi, launch: Launch) -> None:
    file = Path(__file__).parents[2] / "e2e/programs/events.out.tfevents.torch"
    log = "python -c 'from weft_trainer import log_metrics; log_metrics(loss=1.0, step=0)'"
    api = start_api(f"{log}; mkdir runs; cp {file} runs")
    assert launch(api).wait() == 0
    assert api.learners[0].points("loss") == [(0, 1.0)]


# --- by hand ---


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, value: int | float | bytes, double: bool = False) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | (1 if double else 5)) + struct.pack("<d" if double else "<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def summary(step: int, *values: bytes, at: float = 1.75e9) -> bytes:
    return field(1, at, double=True) + field(2, step) + field(5, b"".join(field(1, value) for value in values))


def scalar(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + field(2, float(value))


def tensor(tag: str, *fields: bytes, shape: bytes = b"") -> bytes:
    return field(1, tag.encode()) + field(8, field(2, shape) + b"".join(fields))


def framed(*messages: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(message)) + b"sums" + message + b"sums" for message in messages)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (scalar("x", 0.1), 0.1),
        (scalar("x", 16777217.0), 16777216.0),
        (scalar("x", math.inf), math.inf),
        (tensor("x", field(1, 1), field(4, struct.pack("<f", 0.3))), 0.3),
        (tensor("x", field(1, 2), field(6, struct.pack("<d", 0.1))), 0.1),
        (tensor("x", field(1, 1), field(5, struct.pack("<f", 2.5))), 2.5),
        (tensor("x", field(1, 3), field(7, varint(-5))), -5),
        (tensor("x", field(1, 9), field(10, 1 << 40)), 1 << 40),
        (tensor("x", field(1, 23), field(17, varint(2**63))), 2**63),
        (tensor("x", field(1, 10), field(11, b"\1")), 1),
        (tensor("x", field(1, 14), field(13, varint(0x3FC0))), 1.5),
        (tensor("x", field(1, 14), field(4, b"\xc0\x3f")), 1.5),
        (tensor("x", field(1, 19), field(4, struct.pack("<e", 0.5))), 0.5),
        (tensor("x", field(1, 7), field(8, b"text")), None),
        (tensor("x", field(1, 1), field(4, bytes(8)), shape=field(2, field(1, 2))), None),
        (field(1, b"x") + field(5, b"a histogram"), None),
    ],
)
def test_values(value: bytes, expected: float | None) -> None:
    event = parse_event(summary(-7, value))
    assert event == (None if expected is None else Event(1.75e9, -7, {"x": expected}))


@pytest.mark.parametrize(
    "message", [b"\xff" * 30, b"\x0a\xff\x01", summary(1, b"\x12\x02\x01"), field(3, b"brain.Event:2")]
)
def test_what_is_no_event_with_scalars(message: bytes) -> None:
    assert parse_event(message) is None


class Sink:
    """A shipper that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.said: list[str] = []

    def write(self, records: list[Record], left_out: int = 0, yields: bool = False) -> None:
        self.records += records

    @property
    def points(self) -> list[tuple[str, object, object]]:
        return [(record.group, record.etimes["iteration"], dict(record.values)) for record in self.records]


@pytest.fixture
def sink() -> Sink:
    return Sink()


def reading(sink: Sink, *roots: Path, folder: Path | None = None) -> Callable[[], bool]:
    found = Discovery([*roots, *([folder] if folder else [])], is_event_file, sink.said.append)
    found.ends = True  # tests are faster than a folder that rests
    before = [file for file in found.find() if file.root == folder]
    files = EventFiles(cast(MetricShipper, sink), sink.said.append, folder, before)
    return lambda: files.read(found.find())


def test_a_file_that_grows_byte_by_byte(tmp_path: Path, sink: Sink) -> None:
    path = tmp_path / "train" / "events.out.tfevents.1"
    path.parent.mkdir()
    read = reading(sink, tmp_path)
    data = framed(
        field(3, b"brain.Event:2"), summary(1, scalar("a", 1)), summary(1, scalar("b", 2)), summary(2, scalar("a", 3))
    )
    with path.open("ab", buffering=0) as file:
        for number in range(len(data)):
            file.write(data[number : number + 1])
            os.utime(path, ns=(number, number))
            read()
    assert sink.points == [("train", 1, {"a": 1}), ("train", 1, {"b": 2}), ("train", 2, {"a": 3})]


def test_renamed_begun_anew_removed_and_many(tmp_path: Path, sink: Sink) -> None:
    read = reading(sink, tmp_path)
    first = tmp_path / "a" / "events.out.tfevents.1"
    first.parent.mkdir()
    first.write_bytes(framed(summary(1, scalar("x", 1))))
    read()
    first.parent.rename(tmp_path / "b")
    moved = tmp_path / "b" / first.name
    with moved.open("ab") as file:
        file.write(framed(summary(2, scalar("x", 2), scalar("y", 2))))
    read()
    assert sink.points == [("a", 1, {"x": 1}), ("b", 2, {"x": 2, "y": 2})]
    moved.write_bytes(framed(summary(999, scalar("x", 9))))
    read()
    moved.unlink()
    for number in range(300):  # one of them may get the inode of the file that was removed
        folder = tmp_path / f"many{number}"
        folder.mkdir()
        (folder / "x.tfevents.v2").write_bytes(framed(summary(number, scalar("x", number))))
    read()
    assert sink.points[2] == ("b", 999, {"x": 9})
    steps = [step for _, step, _ in sink.points[3:]]
    assert len(steps) == 300
    assert set(steps) == set(range(300))
    read()
    assert len(sink.points) == 303


def test_a_file_that_takes_the_inode_of_another(tmp_path: Path, sink: Sink) -> None:
    """As the file system gives the number of a removed file to the next one. Here it is the same file, with other
    bytes, so that the test does not depend on the file system."""
    read = reading(sink, tmp_path)
    first = tmp_path / "a" / "events.out.tfevents.1"
    write(first, 1, 2)
    read()
    for name, values in (("b", (3, 4)), ("c", (5, 6, 7)), ("c", (8, 9, 10, 11))):
        next_one = tmp_path / name / first.name
        next_one.parent.mkdir(exist_ok=True)
        first = first.rename(next_one)
        first.write_bytes(b"")
        write(first, *values, at=1.75e9 + values[0])
        read()
    written = [("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6, 7)), ("c", (8, 9, 10, 11))]
    assert sink.points == [
        (group, step, {"loss": value}) for group, values in written for step, value in enumerate(values)
    ]


def write(path: Path, *values: float, at: float = 1.75e9) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(framed(*(summary(step, scalar("loss", value), at=at) for step, value in enumerate(values))))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([["runs/Nov23_12-00-00_host"]], [""]),
        ([["runs/Nov23_host"], ["runs/Nov23_host/loss_a"]], ["", "loss_a"]),
        ([["lightning_logs/version_0"], ["lightning_logs/version_1"]], ["", "version_1"]),
        ([["logs/train"], ["logs/validation"]], ["train", "validation"]),
        ([["logs/fit/20261123-120000/train", "logs/fit/20261123-120000/validation"]], ["train", "validation"]),
        ([["runs/lr0.1", "runs/lr0.01"]], ["lr0.1", "lr0.01"]),
        ([["output/runs/a"], ["output/runs/b"], ["output/logs/b"]], ["", "output/b", "output/logs/b"]),
        ([["."], ["runs/a"]], ["", "runs/a"]),
    ],
)
def test_a_single_run_of_the_jobs_folder_needs_no_name(
    tmp_path: Path, sink: Sink, found: list[list[str]], expected: list[str]
) -> None:
    read = reading(sink, folder=tmp_path)
    for folders in found:
        for folder in folders:
            write(tmp_path / folder / f"events.out.tfevents.{len(folder)}", 1.0, at=float(sum(folder.encode())))
        read()
    assert sorted(group for group, _, _ in sink.points) == sorted(expected)


def test_event_files_of_the_code_and_copies_do_not_count(tmp_path: Path, sink: Sink) -> None:
    job, results = tmp_path / "model", tmp_path / "results"
    write(job / "runs/old/events.out.tfevents.1", 1, 2)
    read = reading(sink, results, folder=job)
    write(job / "runs/new/events.out.tfevents.2", 3, at=1.76e9)
    read()
    write(job / "runs/old/events.out.tfevents.1", 4)
    write(job / "runs/new/events.out.tfevents.2", 5, at=1.76e9)
    shutil.copytree(job / "runs", results / "runs")
    for _ in range(2):
        read()
    points = [(group, values) for group, _, values in sink.points]
    copied = [("runs/old", {"loss": value}) for value in (1, 2, 4)]  # no copy of a file that is read
    assert points == [("", {"loss": 3}), ("", {"loss": 5}), *copied]


def test_huge_folders_are_bounded_and_said(tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_FOLDERS", 20)
    for number in range(40):
        (tmp_path / f"data{number:02}" / "deeper").mkdir(parents=True)
    read = reading(sink, folder=tmp_path)
    read()
    assert len(sink.said) == 1
    assert "too many folders" in sink.said[0]
    write(tmp_path / "data00" / "tfevents", 1)
    read()
    assert [values for _, _, values in sink.points] == [{"loss": 1}]


def test_only_a_folder_that_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "runs/a/tfevents", 1)
    for folder in (tmp_path, tmp_path / "runs", tmp_path / "runs/a"):
        os.utime(folder, (1, 1))
    scanned: list[str] = []
    scandir = os.scandir

    def noting(path: str) -> Any:
        scanned.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    finding = Discovery([tmp_path], is_event_file, print)
    for _ in range(3):
        assert [found.path.name for found in finding.find()] == ["tfevents"]
    assert len(scanned) == 3
    write(tmp_path / "runs/b/tfevents", 1)
    finding.ends = True
    assert len(finding.find()) == 2
    assert scanned[3:] == [str(tmp_path / "runs"), str(tmp_path / "runs/b")]


def test_the_innermost_folder_gives_the_group(tmp_path: Path, sink: Sink) -> None:
    (tmp_path / "logs" / "tb" / "train").mkdir(parents=True)
    (tmp_path / "logs" / "tb" / "train" / "tfevents").write_bytes(framed(summary(1, scalar("x", 1))))
    (tmp_path / "logs" / "tfevents").write_bytes(framed(summary(1, scalar("x", 1))))
    reading(sink, tmp_path / "logs", tmp_path / "logs" / "tb", tmp_path / "none")()
    assert sorted(group for group, _, _ in sink.points) == ["", "train"]


def test_hostile_files(tmp_path: Path, sink: Sink) -> None:
    secret = tmp_path / "elsewhere" / "tfevents"
    secret.parent.mkdir()
    secret.write_bytes(framed(summary(1, scalar("secret", 1))))
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "link.tfevents").symlink_to(secret)
    (logs / "folder").symlink_to(secret.parent)
    os.mkfifo(logs / "pipe.tfevents")
    (logs / "broken.tfevents").write_bytes(b"\xff" * 100)
    (logs / "room.tfevents").write_bytes(framed(summary(1, scalar("x", 1))) + bytes(1000))
    read = reading(sink, logs)
    read()
    read()
    assert sink.points == [("", 1, {"x": 1})]
    assert len(sink.said) == 1
    assert "broken.tfevents is damaged" in sink.said[0]


def test_a_record_that_is_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    image = framed(field(1, 1.0, double=True) + field(5, b"\0" * (9 << 20)))
    path = tmp_path / "tfevents"
    path.write_bytes(image[: 5 << 20])
    reader = EventFile()
    with path.open("r+b") as file:
        assert reader.read(file.fileno(), 10) == []
        path.write_bytes(image + framed(summary(4, scalar("x", 1))))
        assert [event.step for event in reader.read(file.fileno(), 10)] == [4]
        path.write_bytes(path.read_bytes() + b"\xff" * 12)
        with pytest.raises(Broken):
            reader.read(file.fileno(), 10)
