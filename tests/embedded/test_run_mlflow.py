"""The results of `weft run` from the stores that MLflow's client writes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from weft_embedded.run.metrics import MetricsFile
from weft_embedded.run.mlflow import MlflowStores

T = 1_769_847_309_000


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowStores:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    made = MlflowStores(tmp_path / "mlflow", 2)
    made.begin(1)
    return made


def client_of(stores: MlflowStores, rank: int = 0) -> MlflowClient:
    variables = stores.environment(rank)
    assert variables.keys() == {"MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"}
    return MlflowClient(variables["MLFLOW_TRACKING_URI"])


def start(client: MlflowClient, number: int, parent: str | None = None) -> str:
    tags = {MLFLOW_PARENT_RUN_ID: parent} if parent else {}
    run_id: str = client.create_run("0", start_time=T + number, run_name=f"run {number}", tags=tags).info.run_id
    return run_id


def points(stores: MlflowStores) -> dict[tuple[int, str, str], list[tuple[int, float]]]:
    found: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for learner, records in stores.read():
        for record in records:
            for key, value in record["values"].items():
                place = (learner, record["group"], key)
                found.setdefault(place, []).append((record["etimes"]["iteration"], value))
    return found


def test_nothing_was_logged(stores: MlflowStores, tmp_path: Path) -> None:
    assert points(stores) == {}
    assert stores.params() == {}
    stores.keep_artifacts(tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_values_are_read_once_and_those_of_further_runs_in_a_group(stores: MlflowStores) -> None:
    first, second = client_of(stores), client_of(stores, 1)
    own = start(first, 1)
    child, other = start(first, 0, parent=own), start(first, 2)
    for run_id, value in ((own, 1.0), (child, 2.0), (other, 3.0)):
        first.log_metric(run_id, "train/loss", value, timestamp=T, step=7)
    second.log_metric(start(second, 3), "train/loss", math.inf)
    assert points(stores) == {
        (1, "", "train/loss"): [(7, 1.0)],
        (1, "run 0", "train/loss"): [(7, 2.0)],
        (1, "run 2", "train/loss"): [(7, 3.0)],
        (2, "", "train/loss"): [(0, math.inf)],
    }
    first.log_batch(own, [Metric("train/loss", 0.5, T, 8), Metric("train/loss", 0.25, T, 9), Metric("acc", 1, T, 9)])
    assert points(stores) == {(1, "", "acc"): [(9, 1.0)], (1, "", "train/loss"): [(8, 0.5), (9, 0.25)]}
    assert points(stores) == {}


def test_a_line_counts_when_it_is_complete(stores: MlflowStores, tmp_path: Path) -> None:
    client = client_of(stores)
    own = start(client, 1)
    client.log_metric(own, "loss", 1.0, step=1)
    path = next((tmp_path / "mlflow/learner-1/0" / own / "metrics").iterdir())
    with path.open("a") as file:
        file.write(f"{T} 0.5 2\n{T} 0.2")
    assert points(stores) == {(1, "", "loss"): [(1, 1.0), (2, 0.5)]}
    with path.open("a") as file:
        file.write("5 3\n")
    assert points(stores) == {(1, "", "loss"): [(3, 0.25)]}


def test_each_attempt_has_a_run_of_its_own_and_may_go_on_with_an_earlier_one(
    stores: MlflowStores, tmp_path: Path
) -> None:
    client, other = client_of(stores), client_of(stores, 1)
    before = start(client, 1)
    client.log_batch(before, [Metric("loss", 1.0, T, 1)], [Param("lr", "0.1"), Param("from", "scratch")])
    other.log_param(start(other, 2), "lr", "0.7")
    assert points(stores).keys() == {(1, "", "loss")}
    assert stores.params() == {"from": "scratch", "lr": "0.1"}, "that of the first learner counts"
    resumed = MlflowStores(tmp_path / "mlflow", 2)
    resumed.begin(2)
    client.log_metric(before, "loss", 0.5, step=2)
    now = start(client, 3)
    client.log_batch(now, [Metric("loss", 0.25, T, 3)], [Param("lr", "0.2")])
    found = points(resumed)
    assert sorted(found.pop((1, "", "loss"))) == [(2, 0.5), (3, 0.25)]
    assert found == {}
    assert resumed.params() == {"from": "scratch", "lr": "0.2"}, "the newest attempt's"


def test_artifacts_are_results(stores: MlflowStores, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    client = client_of(stores)
    own = start(client, 1)
    child = start(client, 2, parent=own)
    for run_id, text in ((own, "a plot"), (child, "of the child")):
        client.log_text(run_id, text, "plots/a.txt")
    client.log_text(own, "logged", "model.pt")
    client.log_text(own, "no manifest", "weft-manifest.json")
    model = client.create_logged_model("0", name="net", source_run_id=own).model_id
    (tmp_path / "weights").write_text("1 2 3")
    client.log_model_artifact(model, str(tmp_path / "weights"))
    points(stores)
    (results / "model.pt").write_text("stored at the end")
    (results / "plots").mkdir()
    (results / "plots/a.txt").write_text("of an earlier attempt")
    os.utime(results / "plots/a.txt", (0, 0))
    for _ in range(2):
        stores.keep_artifacts(results)
        found = {
            path.relative_to(results).as_posix(): path.read_text() for path in results.rglob("*") if path.is_file()
        }
        assert found == {
            "plots/a.txt": "a plot",
            f"mlflow/{child}/plots/a.txt": "of the child",
            "model.pt": "stored at the end",
            f"models/{model}/weights": "1 2 3",
        }


def test_they_are_metrics_of_the_runs_file(stores: MlflowStores, tmp_path: Path) -> None:
    client = client_of(stores)
    client.log_metric(start(client, 1), "val/acc", math.nan, timestamp=T, step=3)
    file = MetricsFile(tmp_path / "metrics.csv")
    for learner, records in stores.read():
        file.add(1, learner, records)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1] == (
        "val/acc,,user,1,1,3,2026-01-31T08:15:09.000Z,nan"
    )
