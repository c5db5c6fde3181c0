"""``weft metrics`` and ``weft tensorboard`` against the API itself, MLflow's own store, TensorBoard's own reader."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from arro3.io import read_parquet
from mlflow.tracking import MlflowClient
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.api.conftest import Api, Attempted, Person, api, api_settings
from tests.api.test_metrics import T, record, send, system
from tests.cli.conftest import Weft

from weft.client import Client
from weft.ui.canvas import ChartStyle
from weft.ui.chart import chart
from weft_core.objects import results_prefix

__all__ = ["api", "api_settings"]  # fixtures

MANIFEST = """name: digits
learners: 2
env: {BATCH: "64"}
framework: {name: pytorch, command: python train.py}
"""


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def job(api: Api, ann: Person) -> Attempted:
    """A job with two attempts of two learners; the second one runs."""
    made = ann.submit(MANIFEST)["id"]
    first = api.attempt(made)
    first.agents[0].start()
    send(first.agents[0], 0, *(record(step, T + 1000 * step, "train", loss=1 / (step + 1)) for step in range(3)))
    api.end_attempt(first)
    second = api.attempt(made)
    for agent in second.agents:
        agent.start()
        values = [0.5, "nan", 0.125 + agent.rank]
        records = [record(step, T + 1000 * step, "train", loss=value) for step, value in enumerate(values)]
        send(agent, 0, *records, record(2, T + 2500, "val", **{"acc[1m]": 0.75}), system(memory_bytes=3 << 20))
    for state in ("PENDING", "PROCESSING"):
        api.set_state(made, state)
    return second


@pytest.fixture
def client(api: Api, ann: Person) -> Iterator[Client]:
    with Client(api.url, ann.token) as made:
        yield made


@pytest.fixture
def weft(
    api: Api, ann: Person, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Weft]:
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", ann.token)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with capture_logs():  # the API is in this process: what it logs is not what the command prints
        yield Weft(capsys)


def test_the_table(weft: Weft, job: Attempted) -> None:
    shown = weft("metrics", "digits")
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0] == ["METRIC", "LEARNER", "ATTEMPT", "POINTS", "STEP", "LAST", "MIN", "MAX", "UPDATED"]
    assert [line[:8] for line in lines[1:]] == [
        ["train/loss", "1", "1", "3", "2", "0.33333", "0.33333", "1"],
        ["train/loss", "1", "2", "3", "2", "0.125", "0.125", "0.5"],
        ["val/acc[1m]", "1", "2", "1", "2", "0.75", "0.75", "0.75"],
        ["train/loss", "2", "2", "3", "2", "1.125", "0.5", "1.125"],
        ["val/acc[1m]", "2", "2", "1", "2", "0.75", "0.75", "0.75"],
    ]
    only = weft("metrics", "digits", "v*", "--learner", "2").out.splitlines()
    assert [line.split()[0] for line in only] == ["METRIC", "val/acc[1m]"]
    assert "system/memory_bytes" in weft("metrics", "digits", "memory*", "--system", "-l", "1").out
    assert "3 MiB" in weft("metrics", "digits", "--system").out
    told = json.loads(weft("metrics", "digits", "--json", "-a", "1").out)
    assert [(series["name"], series["last_step"]) for series in told] == [("train/loss", 2)]
    missing = weft("metrics", "digits", "nothing")
    assert (missing.code, "it has: train/loss, val/acc[1m]" in missing.err) == (4, True)
    assert weft("metrics", "digits", "--csv", "x", "--plot").code == 2


def test_lists_and_show(api: Api, ann: Person, weft: Weft, job: Attempted) -> None:
    ann.submit(MANIFEST.replace("digits", "silent"))
    names = [line.split()[1] for line in weft("list", "--sort", "-metric:train/loss:max").out.splitlines()]
    assert names == ["NAME", "digits", "silent"]
    listed = weft("list", "--metric", "train/loss.max>0.9", "-m", "val/acc[1m]").out.splitlines()
    assert len(listed) == 2
    assert listed[0].split()[2:6] == ["STATE", "train/loss", "max", "val/acc[1m]"]
    assert listed[1].split()[3:5] == ["1", "0.75"]
    assert weft("list", "--metric", "train/loss>2").err.strip() == "no such jobs"
    assert "accepted: created_at, name" in weft("list", "--sort", "loss").err
    row = next(line for line in weft("show", "digits").out.splitlines() if line.startswith("train/loss"))
    assert row.split() == ["train/loss", "0.125", "0.125", "1", "2"]


def test_exports(weft: Weft, job: Attempted, client: Client) -> None:
    rows = list(csv.DictReader(io.StringIO(weft("metrics", "digits", "train/loss", "-a", "2", "--csv", "-").out)))
    assert [(row["learner"], row["step"], row["value"]) for row in rows] == [
        ("1", "0", "0.5"),
        ("1", "1", "nan"),
        ("1", "2", "0.125"),
        ("2", "0", "0.5"),
        ("2", "1", "nan"),
        ("2", "2", "1.125"),
    ]
    assert weft("metrics", "digits", "--parquet", "m.parquet").out == "m.parquet\n"
    assert read_parquet("m.parquet").read_all().num_rows == 11
    found = client.job("digits")
    assert found.metric_values["train/loss"].max == 1
    assert {series.name for series in found.metrics(kind="user", attempt=2)} == {"train/loss", "val/acc[1m]"}
    (curve,) = found.curves(["train/loss"], attempt=2, learner=1, start=1)
    assert (curve.x, curve.last) == ([1, 2], [None, 0.125])
    points = list(found.metric_points(["train/loss"], attempt=1))
    assert [(point.step, point.value, point.time.timestamp()) for point in points] == [
        (step, 1 / (step + 1), T / 1000 + step) for step in range(3)
    ]


def test_charts(weft: Weft, job: Attempted, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    shown = weft("metrics", "digits", "train/loss", "--plot")
    lines = shown.out.splitlines()
    assert lines[0] == "train/loss"
    legend = " ".join(" ".join(lines[1:3]).split())
    assert legend == "a attempt 1, learner 1 b attempt 2, learner 1 c attempt 2, learner 2 * several"
    assert all(len(line) <= 70 for line in lines)
    assert lines[3].startswith(" 1.12 ┤")
    assert lines[-1].split() == ["step", "0", "step", "1", "step", "2"]
    body = "".join(lines[3:-2])
    assert all(letter in body for letter in "ac*")
    (curve,) = client.job("digits").curves(["train/loss"], attempt=1)
    plain = ChartStyle(60, 5, colours=False, unicode=False)
    ascii_only = "\n".join(line.plain for line in chart("loss", [("", curve)], "step", plain))
    assert ascii_only.isascii()
    assert "a" in ascii_only
    bright = chart(
        "loss", [("one", curve), ("two", curve)], "time", ChartStyle(60, 5, colours=True, unicode=True, log=True)
    )
    assert any(0x2800 < ord(character) < 0x2900 for line in bright for character in line.plain)
    assert {span.style for line in bright for span in line.spans} >= {"cyan", "yellow"}
    (negative,) = [
        line.plain for line in chart("x", [("", _negative(curve))], "step", ChartStyle(60, 5, True, True, log=True))[1:]
    ]
    assert "no value can be shown on a logarithmic axis" in negative


def _negative(curve: Any) -> Any:
    return type(curve)(**{**vars(curve), "min": [-1, -1, -1], "max": [-1, -1, -1], "last": [-1, -1, -1]})


def test_following_ends_with_the_job(api: Api, weft: Weft, job: Attempted, monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(seconds: float) -> None:
        send(job.agents[0], 1, record(3, T + 3000, "train", loss=0.1))
        api.end_attempt(job)
        api.set_state(job.job_id, "COMPLETED")

    monkeypatch.setattr("weft.commands.metrics.time", SimpleNamespace(sleep=pause))  # other threads sleep as ever
    followed = weft("metrics", "digits", "train/loss", "-a", "2", "--follow")
    assert followed.code == 0
    assert [line.split("  ", 1)[1] for line in followed.out.splitlines()] == [
        "[1] step 2  train/loss 0.125",
        "[2] step 2  train/loss 1.125",
        "[1] step 3  train/loss 0.1",
    ]
    assert "COMPLETED" in followed.err


@pytest.mark.slow
def test_mlflow(weft: Weft, job: Attempted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "set MLFLOW_TRACKING_URI" in weft("metrics", "digits", "--mlflow").err
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    weft("metrics", "digits", "--mlflow")
    done = weft("metrics", "digits", "--mlflow")
    assert done.code == 0, done.err
    mlflow = MlflowClient(tracking_uri=uri)
    experiment = mlflow.get_experiment_by_name("digits")
    assert experiment is not None
    runs = mlflow.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [run.info.run_id for run in runs] == done.out.split(), "those of the first export are replaced"
    assert [run.data.tags["weft.attempt"] for run in runs] == ["1", "2"]
    assert {run.data.tags["weft.job"] for run in runs} == {job.job_id}
    assert [run.info.status for run in runs] == ["FINISHED", "RUNNING"]
    assert runs[1].data.params.items() >= {"env.BATCH": "64", "framework.name": "pytorch", "learners": "2"}.items()
    assert runs[1].data.metrics.keys() == {
        *("train/loss", "val/acc_1m_"),
        *("learner-2/train/loss", "learner-2/val/acc_1m_"),
    }
    history = mlflow.get_metric_history(runs[1].info.run_id, "train/loss")
    told = sorted((point.step, point.timestamp, point.value) for point in history)
    assert [(step, at) for step, at, _ in told] == [(step, T + 1000 * step) for step in range(3)]
    assert (told[0][2], math.isnan(told[1][2]), told[2][2]) == (0.5, True, 0.125)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    assert "pip install 'weft[mlflow]'" in weft("metrics", "digits", "--mlflow").err


def test_tensorboard(
    api: Api, ann: Person, weft: Weft, job: Attempted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = weft("tensorboard", "digits", "--no-start", "--logdir", "tb")
    assert (done.code, done.out) == (0, "tb\n")
    (folder,) = (tmp_path / "tb").iterdir()
    read = EventAccumulator(str(folder / "attempt-2-learner-2"))
    read.Reload()
    assert read.Tags()["scalars"] == ["train/loss", "val/acc[1m]"]
    loss = [(point.step, point.wall_time, point.value) for point in read.Scalars("train/loss")]
    assert loss[::2] == [(0, T / 1000, 0.5), (2, T / 1000 + 2, 1.125)]
    assert math.isnan(loss[1][2])
    (written,) = (folder / "attempt-2-learner-2").iterdir()
    # The program's own event files take their place once they are among the results.
    api.end_attempt(job)
    api.set_state(job.job_id, "COMPLETED")
    prefix = results_prefix(ann.project_id, job.job_id)
    api.context.objects.put(prefix + "logs/eval/events.out.tfevents.1.host", written.read_bytes())
    done = weft("tensorboard", "digits", "--no-start", "--logdir", "tb")
    assert "1 event file of its results" in done.err
    assert [path.relative_to(folder) for path in folder.rglob("*events*")] == [
        Path("logs/eval/events.out.tfevents.1.host")
    ]
    monkeypatch.setattr("weft.commands.tensorboard.find_spec", lambda name: None)
    assert "pip install 'weft[tensorboard]'" in weft("tensorboard", "digits").err
