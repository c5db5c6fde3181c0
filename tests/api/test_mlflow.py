"""MLflow's tracking API, by MLflow's own client: in a learner, and with a user's token."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from requests import HTTPError
from sqlalchemy import func, text
from tests.api.conftest import Api, Attempted, Person
from tests.environments import python_with

from weft_core.store.models import Attempt

T = 1_769_847_309_000
_PROGRAM = Path(__file__).parents[1] / "e2e/programs/log_to_mlflow.py"
_LOGGER = _PROGRAM.with_name("mlflow_client.py")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A client that does not retry for minutes, and no state of one test in another."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    yield
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.tracking.fluent._active_experiment_id = None
    mlflow.set_tracking_uri(cast(str, None))  # again that of the environment


@pytest.fixture
def sign_in(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MlflowClient]:
    """Makes this process a client with a token, and in a learner with the job's run, as the agent does."""

    def act(token: str, run_id: str | None = None) -> MlflowClient:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", api.url)
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
        if run_id is None:
            monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
        else:
            monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
        return MlflowClient(tracking_uri=api.url)

    return act


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    return api.attempt(ann.submit(set={"learners": "2"})["id"])


def granted(attempt: Attempted, rank: int = 0) -> tuple[str, str]:
    """The token and the run of a learner."""
    spec = attempt.agents[rank].start()["mlflow"]
    return spec["token"], spec["run_id"]


def detail(person: Person, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = person.http.get(f"/api/v1/jobs/{job_id}").json()
    return answer


def series(person: Person, job_id: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    found = person.http.get(f"/api/v1/jobs/{job_id}/metrics").json()["series"]
    return {(entry["name"], entry["learner"], entry["attempt"]): entry for entry in found}


def test_a_program_in_a_learner_logs_to_its_job(
    api: Api, ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient], tmp_path: Path
) -> None:
    sign_in(*granted(gang))
    mlflow.set_experiment("anything")
    (tmp_path / "plot.txt").write_text("a plot")
    with mlflow.start_run(run_name="baseline", tags={"team": "vision"}) as run:
        assert run.info.run_id == gang.job_id
        mlflow.log_params({"lr": 0.1, "opt/name": "adam"})
        mlflow.log_metrics({"train/loss": 0.5, "acc": 0.25}, step=1)
        mlflow.log_metrics({"train/loss": math.nan, "acc": 0.75}, step=2)
        mlflow.log_artifact("plot.txt", "plots")
        mlflow.log_dict({"a": 1}, "config.json")
        with mlflow.start_run(nested=True, run_name="fold-1") as child:
            assert child.info.run_id != gang.job_id
            mlflow.log_param("lr", 0.2)
            mlflow.log_metric("acc", 0.5, step=3)
            mlflow.log_text("of the fold", "note.txt")
    found = detail(ann, gang.job_id)
    assert found["params"] == {"lr": "0.1", "opt/name": "adam"}
    assert found["tags"]["team"] == "vision"
    assert found["state"] == "QUEUED", "the job's state is its own"
    measured = series(ann, gang.job_id)
    assert measured.keys() == {("train/loss", 1, 1), ("acc", 1, 1), ("fold-1/acc", 1, 1)}
    assert (measured["acc", 1, 1]["points"], measured["acc", 1, 1]["last_step"], measured["acc", 1, 1]["max"]) == (
        *(2, 2),
        0.75,
    )
    files = {file["path"]: file["size"] for file in ann.http.get(f"/api/v1/jobs/{gang.job_id}/files").json()["files"]}
    assert files == {
        "plots/plot.txt": 6,
        "config.json": files["config.json"],
        f"mlflow/{child.info.run_id}/note.txt": 11,
    }
    # The same client reads it.
    client = MlflowClient()
    again = client.get_run(gang.job_id)
    assert again.info.run_name == "baseline"
    assert again.data.params == {"lr": "0.1", "opt/name": "adam"}
    assert again.data.metrics["acc"] == 0.75
    assert math.isnan(again.data.metrics["train/loss"])
    assert [(m.step, m.value) for m in client.get_metric_history(gang.job_id, "acc")] == [(1, 0.25), (2, 0.75)]
    assert client.get_run(child.info.run_id).data.metrics == {"acc": 0.5}
    assert client.get_run(child.info.run_id).data.tags["mlflow.parentRunId"] == gang.job_id
    assert [m.step for m in client.get_metric_history(child.info.run_id, "acc")] == [3]
    assert [entry.path for entry in client.list_artifacts(gang.job_id, "plots")] == ["plots/plot.txt"]
    assert Path(mlflow.artifacts.download_artifacts(run_id=gang.job_id, artifact_path="plots")).is_dir()
    assert mlflow.artifacts.load_text(f"runs:/{child.info.run_id}/note.txt") == "of the fold"
    (page,) = ann.http.get("/api/v1/jobs?param=lr&param=none").json()["jobs"]
    assert page["params"] == {"lr": "0.1"}


def test_the_first_run_that_a_client_creates_is_the_jobs(
    ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient]
) -> None:
    """As Lightning's logger does, which does not know MLFLOW_RUN_ID; several learners at once, and again."""
    clients = []
    for rank in (0, 1):
        token, _ = granted(gang, rank)
        clients.append((token, rank))
    for token, rank in clients:
        client = sign_in(token)
        experiment = client.get_experiment_by_name("lightning_logs")
        assert experiment is not None
        run = client.create_run(experiment.experiment_id, run_name="mine")
        assert run.info.run_id == gang.job_id
        client.log_metric(run.info.run_id, "loss", 1.0 + rank, step=1)
        client.log_param(run.info.run_id, "rank", rank)
        client.set_terminated(run.info.run_id)
        other = client.create_run(experiment.experiment_id, run_name="second")
        assert other.info.run_id != gang.job_id
        client.log_metric(other.info.run_id, "loss", 5.0)
    assert detail(ann, gang.job_id)["params"] == {"rank": "0"}, "that of the first learner counts"
    measured = series(ann, gang.job_id)
    assert {key: entry["last"] for key, entry in measured.items()} == {
        **{("loss", 1, 1): 1.0, ("loss", 2, 1): 2.0},
        **{("second/loss", 1, 1): 5.0, ("second/loss", 2, 1): 5.0},
    }


def test_a_retried_attempt_goes_on_with_the_run(
    api: Api, ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient]
) -> None:
    sign_in(*granted(gang))
    with mlflow.start_run():
        mlflow.log_params({"lr": 0.1, "from": "scratch"})
        mlflow.log_metric("loss", 1.0, step=1)
        with pytest.raises(MlflowException, match="Changing param values is not allowed"):
            mlflow.log_param("lr", 0.2)
    api.end_attempt(gang)
    second = api.attempt(gang.job_id)
    sign_in(*granted(second))
    with mlflow.start_run():
        mlflow.log_params({"lr": 0.1, "from": "checkpoint"})
        mlflow.log_metric("loss", 0.5, step=2)
    assert detail(ann, gang.job_id)["params"] == {"lr": "0.1", "from": "checkpoint"}
    assert series(ann, gang.job_id).keys() == {("loss", 1, 1), ("loss", 1, 2)}


def test_a_learners_token_opens_its_job_while_its_attempt_is_open(
    api: Api, ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient]
) -> None:
    token, run_id = granted(gang)
    assert token.startswith("weft_m_")
    assert gang.token not in token
    other = ann.submit()["id"]
    client = sign_in(token)
    for foreign in (other, "0" * 32, "job-\u00e9"):
        with pytest.raises(MlflowException, match="not found"):
            client.get_run(foreign)
    assert [run.info.run_id for run in client.search_runs(["0"])] == [run_id]
    plain = api.client(token)
    assert plain.get("/api/v1/jobs").status_code == 401
    assert plain.post("/api/v1/learner/heartbeat", json={"rank": 0, "instance": "x"}).status_code == 401
    assert api.client(gang.token).get(f"/api/2.0/mlflow/runs/get?run_id={run_id}").status_code == 401
    with api.context.database.transaction() as session:
        kept = session.get_one(Attempt, gang.id)
        assert kept.mlflow_sha256 is not None
        assert kept.mlflow_sha256 not in token
    api.end_attempt(gang)
    client.log_metric(run_id, "late", 1.0)  # what a logger sends last
    with pytest.raises(HTTPError, match="can store no more files"):
        client.log_text(run_id, "late", "late.txt")
    api.set_attempt(gang, ended_at=func.now() - text("interval '2 minutes'"))
    for call in (lambda: client.log_metric(run_id, "late", 1.0), lambda: client.get_run(run_id)):
        with pytest.raises(MlflowException, match="the attempt is over"):
            call()


def test_a_user_reads_jobs_as_runs(ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient]) -> None:
    token, run_id = granted(gang)
    client = sign_in(token)
    client.log_batch(run_id, [Metric("acc", 0.9, T, 7)], [Param("lr", "0.1")], [RunTag("team", "vision")])
    client = sign_in(ann.token)
    experiment = client.get_experiment_by_name("hello")
    assert experiment is not None
    assert "hello" in {found.name for found in client.search_experiments()}
    found = client.search_runs([experiment.experiment_id], "metrics.acc > 0.5 and params.lr = '0.1'")
    assert [run.info.run_id for run in found] == [run_id]
    (run,) = found
    assert (run.info.status, run.info.user_id, run.data.tags["weft.state"]) == ("SCHEDULED", ann.name, "QUEUED")
    assert (run.data.metrics, run.data.params) == ({"acc": 0.9}, {"lr": "0.1"})
    assert run.data.tags["team"] == "vision"
    assert not client.search_runs([experiment.experiment_id], "tags.team ILIKE 'SOUND%'")
    assert client.search_runs([experiment.experiment_id], "tags.team ILIKE 'VIS%' and attributes.run_name = 'hello'")
    client.log_metric(run_id, "test_acc", 0.8)  # of a later evaluation, on a laptop
    client.set_tag(run_id, "reviewed", "yes")
    assert series(ann, run_id)["test_acc", 1, 1]["last"] == 0.8
    with pytest.raises(MlflowException, match="can't be deleted here"):
        client.delete_run(run_id)


def test_runs_of_no_job(ann: Person, sign_in: Callable[..., MlflowClient], tmp_path: Path) -> None:
    sign_in(ann.token)
    mlflow.set_experiment("laptop")
    runs = []
    for number in range(3):
        with mlflow.start_run(run_name=f"try {number}") as run:
            mlflow.log_param("lr", 10**-number)
            for step in range(4):
                mlflow.log_metrics({"loss": 1 / (step + 1 + number), "odd name/x": step}, step=step)
            mlflow.log_text("hello", "deep/er/hello.txt")
        runs.append(run.info.run_id)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("laptop")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], order_by=["metrics.loss ASC"])
    assert [run.info.run_id for run in found] == runs[::-1]
    assert found[0].info.status == "FINISHED"
    assert found[0].info.end_time is not None
    first = client.search_runs([experiment.experiment_id], "", max_results=2)
    rest = client.search_runs([experiment.experiment_id], "", max_results=2, page_token=first.token)
    assert {run.info.run_id for run in (*first, *rest)} == set(runs)
    assert [m.step for m in client.get_metric_history(runs[0], "odd name/x")] == [0, 1, 2, 3]
    assert [entry.path for entry in client.list_artifacts(runs[0], "deep")] == ["deep/er"]
    assert mlflow.artifacts.load_text(f"runs:/{runs[0]}/deep/er/hello.txt") == "hello"
    client.delete_run(runs[0])
    assert client.get_run(runs[0]).info.lifecycle_stage == "deleted"
    with pytest.raises(MlflowException, match="must be in the 'active' state"):
        client.log_metric(runs[0], "loss", 1.0)
    assert len(client.search_runs([experiment.experiment_id])) == 2
    client.restore_run(runs[0])
    client.set_experiment_tag(experiment.experiment_id, "kind", "trial")
    client.rename_experiment(experiment.experiment_id, "moved")
    assert client.get_experiment(experiment.experiment_id).name == "moved"
    assert client.get_experiment_by_name("laptop") is None
    with pytest.raises(MlflowException, match="already exists"):
        client.create_experiment("moved")
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(MlflowException, match="'active' state"):
        client.create_run(experiment.experiment_id)
    assert ann.http.get("/api/v1/jobs").json()["jobs"] == [], "they are no jobs"


def test_logged_models_and_inputs(
    ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient], tmp_path: Path
) -> None:
    sign_in(*granted(gang))
    with mlflow.start_run() as run:
        source = '{"uri": "https://example.org/data"}'
        data = DatasetInput(Dataset("images", "d1", "http", source), [InputTag("mlflow.data.context", "training")])
        MlflowClient().log_inputs(run.info.run_id, [data])
        model = mlflow.initialize_logged_model("net", params={"depth": "3"}, model_type="cnn")
        (tmp_path / "weights").write_text("1 2 3")
        client = MlflowClient()
        client.log_model_artifact(model.model_id, str(tmp_path / "weights"))
        mlflow.finalize_logged_model(model.model_id, "READY")
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=1)])
        mlflow.set_logged_model_tags(model.model_id, {"stage": "draft"})
        mlflow.log_metric("acc", 0.9, step=1, model_id=model.model_id)
    files = [file["path"] for file in ann.http.get(f"/api/v1/jobs/{gang.job_id}/files").json()["files"]]
    assert files == [f"models/{model.model_id}/weights"]
    assert [entry.path for entry in client.list_logged_model_artifacts(model.model_id)] == ["weights"]
    kept = client.get_logged_model(model.model_id)
    assert (kept.name, kept.params, kept.tags["stage"], str(kept.status)) == (
        *("net", {"depth": "3"}, "draft"),
        "READY",
    )
    assert [(metric.key, metric.value) for metric in kept.metrics or ()] == [("acc", 0.9)]
    assert kept.source_run_id == gang.job_id
    again = client.get_run(run.info.run_id)
    assert again.inputs is not None
    assert again.outputs is not None
    assert [given.dataset.name for given in again.inputs.dataset_inputs] == ["images"]
    assert [output.model_id for output in again.outputs.model_outputs] == [model.model_id]
    client = sign_in(ann.token)
    experiment = client.get_experiment_by_name("hello")
    assert experiment is not None
    found = client.search_logged_models([experiment.experiment_id], "attributes.name = 'net' and metrics.acc > 0.5")
    assert [entry.model_id for entry in found] == [model.model_id]
    client.delete_logged_model(model.model_id)
    with pytest.raises(MlflowException, match="not found"):
        client.get_logged_model(model.model_id)


def test_roles_projects_and_unknown_endpoints(
    api: Api, ann: Person, bob: Person, sign_in: Callable[..., MlflowClient]
) -> None:
    client = sign_in(ann.token)
    run = client.create_run("0", run_name="hers")
    viewer = sign_in(api.person("viewer", ann.project_id).token)
    assert viewer.get_run(run.info.run_id).info.run_name == "hers"
    for write in (
        lambda: viewer.log_metric(run.info.run_id, "loss", 1.0),
        lambda: viewer.set_tag(run.info.run_id, "a", "b"),
        lambda: viewer.create_experiment("x"),
        lambda: viewer.log_text(run.info.run_id, "a", "a.txt"),
    ):
        with pytest.raises((MlflowException, HTTPError), match="needs the role editor"):
            write()
    foreign = sign_in(bob.token)
    with pytest.raises(MlflowException, match="not found"):
        foreign.get_run(run.info.run_id)
    with pytest.raises(MlflowException, match="not found"):
        foreign.log_metric(run.info.run_id, "loss", 1.0)
    with pytest.raises(HTTPError, match="not found"):
        foreign.log_text(run.info.run_id, "a", "a.txt")
    assert foreign.search_runs(["0"]) == []
    answer = ann.http.post("/api/2.0/mlflow/registered-models/create", json={"name": "x"})
    assert (answer.status_code, answer.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
    assert "it serves experiments, runs" in answer.json()["message"]
    assert api.client().get("/api/2.0/mlflow/runs/get?run_id=x").json()["error_code"] == "UNAUTHENTICATED"


def test_what_is_refused(
    api: Api, ann: Person, sign_in: Callable[..., MlflowClient], capsys: pytest.CaptureFixture[str]
) -> None:
    """In MLflow's words where it has some; never a 5xx. The server's log names each."""
    run_id = sign_in(ann.token).create_run("0").info.run_id

    def post(path: str, **body: Any) -> tuple[int, str]:
        answer = ann.http.post(f"/api/2.0/mlflow/{path}", content=json.dumps(body))
        return answer.status_code, answer.json().get("error_code", "")

    wrong = (400, "INVALID_PARAMETER_VALUE")
    for metric in (
        {"key": "a"},
        {"key": "a", "value": True},
        {"key": "a", "value": "x"},
        {"key": "../a", "value": 1},
        {"key": "a\u0000", "value": 1},
        {"key": "a" * 251, "value": 1},
        {"key": "a", "value": 1, "timestamp": -1},
        {"key": "a", "value": 1, "step": 2**64},
    ):
        assert post("runs/log-metric", run_id=run_id, **metric) == wrong, metric
    logged: list[str] = []
    while len(logged) < 8:  # a call is logged after its answer
        logged += [line for line in capsys.readouterr().out.splitlines() if "runs/log-metric status=400" in line]
        time.sleep(0.01)
    assert all("[info " in line for line in logged)
    assert post("runs/log-metric", run_id=run_id, key="a", value="NaN", timestamp="5", step="7") == (200, "")
    many = [{"key": f"m{n}", "value": n, "timestamp": 1, "step": 0} for n in range(1001)]
    assert post("runs/log-batch", run_id=run_id, metrics=many) == wrong
    params = [{"key": f"p{n}", "value": "v"} for n in range(101)]
    assert post("runs/log-batch", run_id=run_id, params=params) == wrong
    twice = [{"key": "p", "value": "1"}, {"key": "p", "value": "2"}]
    assert post("runs/log-batch", run_id=run_id, params=twice) == wrong
    assert post("runs/log-batch", run_id=run_id, metrics="x") == wrong
    assert post("runs/log-batch", run_id=[1]) == wrong
    assert post("runs/update", run_id=run_id, status="DONE") == wrong
    for bad in ("metrics.a >", "nothing", "metrics.a > 'x' or", "params.a = (", "foo.bar = 1", "tags.a LIKE 5"):
        assert post("runs/search", experiment_ids=["0"], filter=bad) == wrong, bad
    assert ann.http.post("/api/2.0/mlflow/runs/search", content=b"[").json()["error_code"] == wrong[1]
    assert post("runs/log-parameter", run_id=run_id, key="long", value="x" * 7000) == (200, "")
    kept = ann.http.get(f"/api/2.0/mlflow/runs/get?run_id={run_id}").json()["run"]["data"]
    assert len(kept["params"][0]["value"]) == 6000, "cut, as by MLflow's server"
    assert kept["metrics"] == [{"key": "a", "value": "NaN", "timestamp": 5, "step": 7}]
    files = "/api/2.0/mlflow-artifacts/artifacts"
    for path in (f"{run_id}/a/%2e%2e/b", f"{run_id}/a//b", f"{run_id}", f"{run_id}/a%5Cb", f"{run_id}/a%00"):
        answer = ann.http.put(f"{files}/{path}", content=b"x")
        assert answer.status_code in (400, 404), path
    assert ann.http.get(f"{files}/{run_id}/none.txt").json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"


def test_batches_of_many_clients_at_once(ann: Person, gang: Attempted, sign_in: Callable[..., MlflowClient]) -> None:
    """No value is lost, of a job and of runs without a job."""
    token, job = granted(gang)
    client = sign_in(ann.token)
    runs = [client.create_run("0").info.run_id for _ in range(4)]
    http = [ann.http, gang.agents[0].http]

    def send(number: int) -> int:
        whose = number % 5
        run_id, auth = (job, token) if whose == 4 else (runs[whose], ann.token)
        metrics = [{"key": f"m{n}", "value": number, "timestamp": T, "step": number} for n in range(10)]
        headers = {"Authorization": f"Bearer {auth}"}
        body = {"run_id": run_id, "metrics": metrics}
        return http[0].post("/api/2.0/mlflow/runs/log-batch", json=body, headers=headers).status_code

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(send, range(50))) == {200}
    for place, run_id in enumerate(runs):
        assert sorted(m.step for m in client.get_metric_history(run_id, "m3")) == list(range(place, 50, 5))
        assert client.get_run(run_id).data.metrics["m9"] == 45 + place
    assert series(ann, job)["m0", 1, 1]["points"] == 10


@pytest.mark.slow
def test_a_program_with_an_older_client(api: Api, ann: Person, gang: Attempted, tmp_path: Path) -> None:
    """The version is the oldest that `weft[mlflow]` allows. The first run on a machine installs it."""
    token, run_id = granted(gang)
    access = {"MLFLOW_TRACKING_URI": api.url, "MLFLOW_TRACKING_TOKEN": token, "MLFLOW_RUN_ID": run_id}
    python = str(python_with("mlflow-skinny==2.16.2"))
    token_of_second = granted(gang, 1)[0]
    for given, program in ((access, _PROGRAM), (access | {"MLFLOW_TRACKING_TOKEN": token_of_second}, _LOGGER)):
        done = subprocess.run(
            [python, str(program)], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "logged with MLflow 2.16.2" in done.stdout
    assert detail(ann, run_id)["params"] == {"lr": "0.1", "layers": "[3, 5]", "rate": "0.05"}
    assert series(ann, run_id).keys() == {
        *(("train/loss", 1, 1), ("acc", 1, 1), ("fold/acc", 1, 1)),
        ("loss", 2, 1),
    }
