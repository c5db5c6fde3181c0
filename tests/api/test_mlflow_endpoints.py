"""Weft beside MLflow's own server: the same calls of MLflow's REST API, and the same answers.

MLflow's packages lack the tests of its REST API, but they say which endpoints there are. Each is either served by Weft,
and called here, or listed with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from mlflow.protos import databricks_pb2, mlflow_artifacts_pb2, service_pb2
from tests.api.conftest import Person
from tests.environments import FIRST_RUN
from tests.mlflow_server import mlflow_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(FIRST_RUN)]  # the first run on a machine installs MLflow's server

T = 1_769_847_309_000
NOT_SERVED = {
    "traces": "traces of calls of language models",
    "unified-traces": "traces",
    "get-online-trace-details": "traces",
    "datasets": "data sets for the evaluation of agents",
    "scorers": "judges of the evaluation of agents",
    "issues": "of traces",
    "label-schemas": "reviews of traces",
    "review-queues": "reviews of traces",
    "prompt-optimization": "prompts",
    "gateway": "a proxy for language models",
    "workspaces": "Weft has projects",
    "experiments/search-datasets": "for MLflow's own pages",
    "metrics/get-history-bulk-interval": "for the charts of MLflow's own pages",
    "artifacts/presigned-upload-url": "artifacts go through the API",
    "artifacts/presigned-download-url": "artifacts go through the API",
    "mlflow-artifacts/presigned": "artifacts go through the API",
}
"""Endpoints that answer ENDPOINT_NOT_FOUND, and why. The first part of a path stands for all below it."""
REFUSED = {"mlflow-artifacts/mpu": "NOT_IMPLEMENTED: the client then sends the file in one piece"}


ON_PURPOSE = {
    "POST experiments/update, a name that is taken": (400, "RESOURCE_ALREADY_EXISTS", "MLflow says BAD_REQUEST"),
    "POST experiments/update, deleted": (400, "INVALID_PARAMETER_VALUE", "MLflow answers 500, which clients repeat"),
    "GET metrics/get-history, no such run": (404, "RESOURCE_DOES_NOT_EXIST", "MLflow answers an empty list"),
    "POST runs/log-inputs, no digest": (400, "INVALID_PARAMETER_VALUE", "MLflow keeps a data set without its digest"),
    "POST runs/search, parameters in a list": (200, None, "MLflow has IN for attributes only"),
    "POST runs/update, no such status": (400, "INVALID_PARAMETER_VALUE", "MLflow answers 200, and changes nothing"),
    "POST logged-models/search, no such attribute": (400, "INVALID_PARAMETER_VALUE", "MLflow answers 500"),
}
"""Calls that Weft answers in another way: its status and code, and the difference."""


class Endpoint(NamedTuple):
    method: str
    path: str
    """Behind ``/api/2.0/mlflow/``, or from ``mlflow-artifacts/`` on."""
    version: int = 2


def endpoints() -> list[Endpoint]:
    """The tracking endpoints of the installed MLflow."""
    services = (service_pb2.MlflowService, mlflow_artifacts_pb2.MlflowArtifactsService)
    return [
        Endpoint(endpoint.method, place(endpoint.path), endpoint.since.major)
        for service in services
        for method in service.DESCRIPTOR.methods
        for endpoint in method.GetOptions().Extensions[databricks_pb2.rpc].endpoints
    ]


def place(path: str) -> str:
    return path.lstrip("/").removeprefix("mlflow/").replace("<path:artifact_path>", "{path}")


def listed(endpoint: Endpoint, table: dict[str, str]) -> bool:
    path = endpoint.path
    return any(path == entry or path.startswith(f"{entry}/") for entry in table)


class Answer(NamedTuple):
    call: str
    status: int
    error: str | None
    shape: set[str]
    """Each value's path and type. Empty values are left out, as protocol buffers do."""


class Recorder:
    """Calls one server, and keeps the answers that must be the same at the other one."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.answers: list[Answer] = []
        self.reached: set[tuple[str, str]] = set()
        """Endpoints that answered 200."""

    def __call__(self, method: str, path: str, of: str = "", /, **body: Any) -> Any:
        """The JSON of the answer. Names in braces in the path take their values from the body; ``of`` names a call
        that is in ON_PURPOSE."""
        given = {name: value for name, value in body.items() if value is not None}
        address = re.sub(r"{(\w+)}", lambda found: str(given[found[1]]), path)
        base = "/api/2.0" if path.startswith("mlflow-artifacts/") else "/api/2.0/mlflow"
        if method == "GET":
            sent = self._http.get(f"{base}/{address}", params=given)
        elif method == "PUT":
            sent = self._http.put(f"{base}/{address}", content=given.get("content", b""))
        else:
            sent = self._http.request(method, f"{base}/{address}", json=given)
        is_json = sent.headers.get("content-type", "").startswith("application/json")
        found = sent.json() if is_json else {}
        shown = ", ".join(f"{name}={str(value)[:60]}" for name, value in given.items())
        error = found.get("error_code") if sent.status_code != 200 else None
        kept = shape(found) if sent.status_code == 200 else set()
        call = f"{method} {path}, {of}" if of else f"{method} {path} ({shown})"
        self.answers.append(Answer(call, sent.status_code, error, kept))
        if sent.status_code == 200:
            self.reached.add((method, path))
        return found


def shape(value: Any, at: str = "") -> set[str]:
    if isinstance(value, dict):
        return {path for name, held in value.items() for path in shape(held, f"{at}.{name}")}
    if isinstance(value, list):
        return {path for held in value for path in shape(held, f"{at}[]")}
    # A whole number and one with a fraction are one type in JSON, and a number that is not finite is a text in it.
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return set() if value in (None, "") else {f"{at}: {kind}"}


def experiments(call: Recorder) -> str:
    made = call("POST", "experiments/create", name="trials", tags=[{"key": "team", "value": "vision"}])
    experiment: str = made["experiment_id"]
    call("POST", "experiments/create", name="trials")
    call("POST", "experiments/create")
    call("POST", "experiments/create", name="")
    call("POST", "experiments/create", name=5)
    call("GET", "experiments/get", experiment_id=experiment)
    call("GET", "experiments/get", experiment_id="123456")
    call("GET", "experiments/get")
    call("GET", "experiments/get-by-name", experiment_name="trials")
    call("GET", "experiments/get-by-name", experiment_name="none")
    call("GET", "experiments/get-by-name")
    call("POST", "experiments/set-experiment-tag", experiment_id=experiment, key="kind", value="trial")
    call("POST", "experiments/set-experiment-tag", experiment_id="123456", key="kind", value="trial")
    call("POST", "experiments/set-experiment-tag", experiment_id=experiment, value="trial")
    call("POST", "experiments/delete-experiment-tag", experiment_id=experiment, key="kind")
    call("POST", "experiments/delete-experiment-tag", experiment_id=experiment, key="kind")
    for name in ("second", "third"):
        call("POST", "experiments/create", name=name)
    for method in ("GET", "POST"):
        call(method, "experiments/search", max_results=10)
    page = call("POST", "experiments/search", max_results=2, order_by=["name ASC"])
    call("POST", "experiments/search", max_results=2, order_by=["name ASC"], page_token=page["next_page_token"])
    for text in (
        "name LIKE 's%'",
        "tags.team = 'vision'",
        "name ILIKE 'TRI%' AND tags.team != 'x'",
        "attribute.name = 'x'",
    ):
        call("POST", "experiments/search", max_results=10, filter=text)
    for wrong in ("name ~ 's%'", "nothing = 'x'", "name = 5", "metrics.a > 1"):
        call("POST", "experiments/search", max_results=10, filter=wrong)
    call("POST", "experiments/search", max_results=10, order_by=["nothing"])
    call("POST", "experiments/search", max_results=0)
    call("POST", "experiments/search", max_results=10, page_token="what")
    call("POST", "experiments/update", experiment_id=experiment, new_name="renamed")
    call("POST", "experiments/update", "a name that is taken", experiment_id=experiment, new_name="second")
    call("POST", "experiments/update", experiment_id=experiment)
    call("POST", "experiments/update", experiment_id="123456", new_name="x")
    call("POST", "experiments/delete", experiment_id=experiment)
    call("POST", "experiments/delete", experiment_id="123456")
    call("GET", "experiments/get", experiment_id=experiment)
    call("POST", "experiments/search", max_results=10, view_type="DELETED_ONLY")
    call("POST", "experiments/create", name="renamed")
    call("POST", "runs/create", experiment_id=experiment, start_time=T)
    call("POST", "experiments/update", "deleted", experiment_id=experiment, new_name="y")
    call("POST", "experiments/restore", experiment_id=experiment)
    call("POST", "experiments/restore", experiment_id="123456")
    return experiment


def runs(call: Recorder, experiment: str) -> None:
    tags = [{"key": "mlflow.user", "value": "ann"}, {"key": "team", "value": "vision"}]
    made = call(
        "POST", "runs/create", experiment_id=experiment, user_id="ann", run_name="first", start_time=T, tags=tags
    )
    run = made["run"]["info"]["run_id"]
    other = call("POST", "runs/create", experiment_id=experiment, user_id="ann", start_time=T + 1)
    other = other["run"]["info"]["run_id"]
    call("POST", "runs/create", experiment_id="123456", user_id="ann", start_time=T)
    call("POST", "runs/create", experiment_id=experiment, user_id="ann", start_time="then")
    call("GET", "runs/get", run_id=run)
    call("GET", "runs/get", run_id="0" * 32)
    call("GET", "runs/get")
    metrics(call, run)
    params_and_tags(call, run)
    inputs(call, run)
    call("GET", "runs/get", run_id=run)
    call("POST", "runs/log-metric", run_id=other, key="loss", value=9, timestamp=T, step=0)
    search(call, experiment)
    call("POST", "runs/update", run_id=run, status="FINISHED", end_time=T + 5, run_name="renamed")
    call("POST", "runs/update", "no such status", run_id=run, status="DONE")
    call("POST", "runs/update", run_id="0" * 32, status="FINISHED")
    call("POST", "runs/update", status="FINISHED")
    call("GET", "runs/get", run_id=run)
    artifacts(call, run)
    call("POST", "runs/delete", run_id=other)
    call("POST", "runs/delete", run_id="0" * 32)
    call("POST", "runs/log-metric", run_id=other, key="loss", value=9, timestamp=T, step=0)
    call("POST", "runs/log-batch", run_id=other, metrics=[], params=[{"key": "a", "value": "b"}], tags=[])
    call("POST", "runs/log-parameter", run_id=other, key="a", value="b")
    call("POST", "runs/set-tag", run_id=other, key="a", value="b")
    call("POST", "runs/update", run_id=other, status="FINISHED")
    call("GET", "runs/get", run_id=other)
    call("POST", "runs/search", experiment_ids=[experiment], run_view_type="DELETED_ONLY")
    call("POST", "runs/search", experiment_ids=[experiment], run_view_type="ALL")
    call("POST", "runs/restore", run_id=other)
    call("POST", "runs/restore", run_id="0" * 32)


def metrics(call: Recorder, run: str) -> None:
    call("POST", "runs/log-metric", run_id=run, key="loss", value=0.5, timestamp=T, step=1)
    call("POST", "runs/log-metric", run_id=run, key="loss", value="NaN", timestamp=T, step=2)
    call("POST", "runs/log-metric", run_id=run, key="train/loss", value=2, timestamp=str(T), step="3")
    call("POST", "runs/log-metric", run_id="0" * 32, key="loss", value=0.5, timestamp=T, step=1)
    call("POST", "runs/log-metric", key="loss", value=0.5, timestamp=T, step=1)
    for key, value, time, step in (
        (None, 1, T, 0),
        ("a", None, T, 0),
        ("a", "x", T, 0),
        ("a", 1, "x", 0),
        ("a", 1, None, 0),
        ("a", 1, T, "x"),
        ("../a", 1, T, 0),
        ("a" * 251, 1, T, 0),
        ("a|b", 1, T, 0),
    ):
        call("POST", "runs/log-metric", run_id=run, key=key, value=value, timestamp=time, step=step)
    batch = [{"key": "acc", "value": n / 10, "timestamp": T + n, "step": n} for n in range(8)]
    call("POST", "runs/log-batch", run_id=run, metrics=batch, params=[{"key": "lr", "value": "0.1"}], tags=[])
    call("POST", "runs/log-batch", run_id=run)
    call("POST", "runs/log-batch")
    call("POST", "runs/log-batch", run_id="0" * 32, metrics=batch)
    call("POST", "runs/log-batch", run_id=run, metrics="x")
    call("POST", "runs/log-batch", run_id=run, metrics=[{"key": "a"}])
    call("POST", "runs/log-batch", run_id=run, metrics=batch * 126)
    call("POST", "runs/log-batch", run_id=run, params=[{"key": f"p{n}", "value": "v"} for n in range(101)])
    call("POST", "runs/log-batch", run_id=run, tags=[{"key": f"t{n}", "value": "v"} for n in range(101)])
    call("POST", "runs/log-batch", run_id=run, params=[{"key": "p", "value": "1"}, {"key": "p", "value": "2"}])
    call("POST", "runs/log-batch", run_id=run, params=[{"key": "lr", "value": "0.2"}])
    call("GET", "metrics/get-history", run_id=run, metric_key="acc")
    page = call("GET", "metrics/get-history", run_id=run, metric_key="acc", max_results=3)
    call("GET", "metrics/get-history", run_id=run, metric_key="acc", max_results=3, page_token=page["next_page_token"])
    call("GET", "metrics/get-history", run_id=run, metric_key="loss")
    call("GET", "metrics/get-history", run_id=run, metric_key="none")
    call("GET", "metrics/get-history", run_id=run)
    call("GET", "metrics/get-history", "no such run", run_id="0" * 32, metric_key="acc")


def params_and_tags(call: Recorder, run: str) -> None:
    call("POST", "runs/log-parameter", run_id=run, key="depth", value="3")
    call("POST", "runs/log-parameter", run_id=run, key="depth", value="3")
    call("POST", "runs/log-parameter", run_id=run, key="depth", value="4")
    call("POST", "runs/log-parameter", run_id=run, value="4")
    call("POST", "runs/log-parameter", run_id=run, key="empty", value="")
    call("POST", "runs/log-parameter", run_id=run, key="long", value="x" * 6001)
    call("POST", "runs/log-parameter", run_id="0" * 32, key="depth", value="3")
    call("POST", "runs/set-tag", run_id=run, key="stage", value="draft")
    call("POST", "runs/set-tag", run_id=run, key="stage", value="final")
    call("POST", "runs/set-tag", run_id=run, key="long", value="x" * 8001)
    call("POST", "runs/set-tag", run_id=run, key="bad|name", value="x")
    call("POST", "runs/set-tag", run_id=run, value="x")
    call("POST", "runs/set-tag", run_id="0" * 32, key="stage", value="x")
    call("POST", "runs/delete-tag", run_id=run, key="stage")
    call("POST", "runs/delete-tag", run_id=run, key="stage")
    call("POST", "runs/delete-tag", run_id="0" * 32, key="stage")


def inputs(call: Recorder, run: str) -> None:
    dataset = {"name": "images", "digest": "d1", "source_type": "http", "source": "{}", "schema": "{}", "profile": "{}"}
    tags = [{"key": "mlflow.data.context", "value": "training"}]
    call("POST", "runs/log-inputs", run_id=run, datasets=[{"dataset": dataset, "tags": tags}])
    call("POST", "runs/log-inputs", "no digest", run_id=run, datasets=[{"dataset": {"name": "images"}}])
    call("POST", "runs/log-inputs", datasets=[{"dataset": dataset, "tags": tags}])
    call("POST", "runs/log-inputs", run_id="0" * 32, datasets=[{"dataset": dataset, "tags": tags}])
    about = json.dumps({"run_id": run, "artifact_path": "model", "flavors": {}, "utc_time_created": "2026-01-01"})
    call("POST", "runs/log-model", run_id=run, model_json=about)
    call("POST", "runs/log-model", run_id=run, model_json="{")
    call("POST", "runs/log-model", run_id="0" * 32, model_json=about)


def search(call: Recorder, experiment: str) -> None:
    for text in (
        "metrics.acc > 0.5 and params.lr = '0.1'",
        "metrics.`train/loss` <= 2",
        "tags.team LIKE 'vis%' AND attributes.status = 'RUNNING'",
        "attributes.run_name ILIKE 'FIR%'",
        "attributes.run_id NOT IN ('a')",
        "params.lr IS NOT NULL",
        "dataset.name = 'images' and dataset.context = 'training'",
        "start_time > 0",
    ):
        call("POST", "runs/search", experiment_ids=[experiment], filter=text)
    text = "params.lr IN ('0.1', '0.2')"
    call("POST", "runs/search", "parameters in a list", experiment_ids=[experiment], filter=text)
    for wrong in (
        "metrics.acc >",
        "nothing",
        "foo.bar = 1",
        "params.lr = 0.1",
        "metrics.acc = 'x'",
        "params.lr > 'a' or params.lr < 'b'",
        "attributes.nothing = 'x'",
        "tags.team LIKE 5",
        "params.lr = (",
    ):
        call("POST", "runs/search", experiment_ids=[experiment], filter=wrong)
    page = call("POST", "runs/search", experiment_ids=[experiment], max_results=1, order_by=["metrics.loss DESC"])
    token = page["next_page_token"]
    call("POST", "runs/search", experiment_ids=[experiment], max_results=1, page_token=token)
    for order in ("params.lr ASC", "attributes.start_time", "tags.team DESC", "nothing here", "metrics.loss UP"):
        call("POST", "runs/search", experiment_ids=[experiment], order_by=[order])
    call("POST", "runs/search", experiment_ids=[experiment], max_results=50_001)
    call("POST", "runs/search", experiment_ids=[experiment], run_view_type="SOME")
    call("POST", "runs/search", experiment_ids=["123456"])
    call("POST", "runs/search", experiment_ids="x")


def artifacts(call: Recorder, run: str) -> None:
    found = call("GET", "runs/get", run_id=run)["run"]["info"]["artifact_uri"]
    root = found.removeprefix("mlflow-artifacts:/").lstrip("/")
    files = "mlflow-artifacts/artifacts/{path}"
    for path in ("notes.txt", "plots/deep/a.png"):
        call("PUT", files, path=f"{root}/{path}", content=b"hello")
    call("GET", "artifacts/list", run_id=run)
    call("GET", "artifacts/list", run_id=run, path="plots")
    call("GET", "artifacts/list", run_id=run, path="none")
    call("GET", "artifacts/list", run_id=run, path="../..")
    call("GET", "artifacts/list", run_id="0" * 32)
    call("GET", "artifacts/list")
    call("GET", "mlflow-artifacts/artifacts", path=root)
    call("GET", "mlflow-artifacts/artifacts", path="../..")
    call("GET", files, path=f"{root}/plots/deep/a.png")
    call("DELETE", files, path=f"{root}/notes.txt")
    call("GET", "artifacts/list", run_id=run)


def models(call: Recorder, experiment: str) -> None:
    made = call("POST", "runs/create", experiment_id=experiment, user_id="ann", run_name="training", start_time=T)
    run = made["run"]["info"]["run_id"]
    given = {"experiment_id": experiment, "name": "net", "model_type": "cnn", "source_run_id": run}
    pairs = {"params": [{"key": "depth", "value": "3"}], "tags": [{"key": "stage", "value": "draft"}]}
    model = call("POST", "logged-models", **given, **pairs)["model"]["info"]["model_id"]
    call("POST", "logged-models", experiment_id=experiment, name="bad/name")
    call("POST", "logged-models", experiment_id="123456", name="net")
    call("GET", "logged-models/{model_id}", model_id=model)
    call("GET", "logged-models/{model_id}", model_id="m-none")
    call("PATCH", "logged-models/{model_id}", model_id=model, status="LOGGED_MODEL_READY")
    call("PATCH", "logged-models/{model_id}", model_id="m-none", status="LOGGED_MODEL_READY")
    call("POST", "logged-models/{model_id}/params", model_id=model, params=[{"key": "width", "value": "4"}])
    call("POST", "logged-models/{model_id}/params", model_id="m-none", params=[{"key": "width", "value": "4"}])
    call("PATCH", "logged-models/{model_id}/tags", model_id=model, tags=[{"key": "owner", "value": "ann"}])
    call("PATCH", "logged-models/{model_id}/tags", model_id="m-none", tags=[{"key": "owner", "value": "ann"}])
    call("DELETE", "logged-models/{model_id}/tags/{tag_key}", model_id=model, tag_key="owner")
    call("DELETE", "logged-models/{model_id}/tags/{tag_key}", model_id=model, tag_key="owner")
    metric = {"key": "acc", "value": 0.9, "timestamp": T, "step": 1, "model_id": model}
    measured = metric | {"dataset_name": "images", "dataset_digest": "d1"}
    call("POST", "runs/log-metric", run_id=run, **measured)
    call("POST", "runs/log-inputs", run_id=run, models=[{"model_id": model}])
    call("POST", "runs/outputs", run_id=run, models=[{"model_id": model, "step": 1}])
    call("POST", "runs/outputs", run_id="0" * 32, models=[{"model_id": model, "step": 1}])
    call("GET", "runs/get", run_id=run)
    call("GET", "logged-models/{model_id}", model_id=model)
    call("GET", "logged-models/{model_id}/artifacts/directories", model_id=model)
    call("GET", "logged-models/{model_id}/artifacts/directories", model_id="m-none")
    for text in (
        "name = 'net'",
        "params.depth = '3' AND metrics.acc > 0.5",
        "attributes.model_type LIKE 'c%'",
        "tags.stage = 'x'",
    ):
        call("POST", "logged-models/search", experiment_ids=[experiment], filter=text)
    for wrong in ("foo.bar = 'x'", "params.depth >"):
        call("POST", "logged-models/search", experiment_ids=[experiment], filter=wrong)
    text = "attributes.nothing = 'x'"
    call("POST", "logged-models/search", "no such attribute", experiment_ids=[experiment], filter=text)
    order = [{"field_name": "metrics.acc", "ascending": False}]
    call("POST", "logged-models/search", experiment_ids=[experiment], order_by=order, max_results=10)
    call("DELETE", "logged-models/{model_id}", model_id=model)
    call("DELETE", "logged-models/{model_id}", model_id=model)
    call("GET", "logged-models/{model_id}", model_id=model)
    call("POST", "logged-models/search", experiment_ids=[experiment])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """MLflow's server, of the installed client's version."""
    folder = tmp_path_factory.mktemp("mlflow")
    database = f"sqlite:///{folder}/mlflow.db"
    with mlflow_server(folder, database, "--workers", "1") as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def test_answers_are_those_of_mlflows_server(ann: Person, original: httpx.Client) -> None:
    theirs, ours = Recorder(original), Recorder(ann.http)
    for call in (theirs, ours):
        experiment = experiments(call)
        runs(call, experiment)
        models(call, experiment)
    different = []
    assert ON_PURPOSE.keys() <= {found.call for found in ours.answers}
    for expected, found in zip(theirs.answers, ours.answers, strict=True):
        if found.call in ON_PURPOSE:
            assert (found.status, found.error) == ON_PURPOSE[found.call][:2], found.call
            assert (found.status, found.error) != (expected.status, expected.error), "there is no difference any more"
        elif (expected.status, expected.error) != (found.status, found.error):
            different.append(f"{found.call}\n    {expected.status} {expected.error} -> {found.status} {found.error}")
        elif expected.shape != found.shape:
            lacks, adds = sorted(expected.shape - found.shape), sorted(found.shape - expected.shape)
            different.append(f"{found.call}\n    lacks {lacks}, adds {adds}")
    assert not different, "\n".join(different)
    served = {(e.method, e.path) for e in endpoints() if not listed(e, NOT_SERVED) and not listed(e, REFUSED)}
    names = sorted(f"{method} {path}" for method, path in served ^ ours.reached)
    assert not names, f"served, but not called here, or the other way round: {names}"


def test_other_endpoints_are_known_and_not_there(ann: Person) -> None:
    """A new version of MLflow with more endpoints fails here, or above, with their names."""
    others = [endpoint for endpoint in endpoints() if listed(endpoint, NOT_SERVED)]
    unused = {entry for entry in NOT_SERVED if not any(listed(endpoint, {entry: ""}) for endpoint in others)}
    assert not unused, "MLflow has these no more"
    for endpoint in others:
        below = endpoint.path if endpoint.path.startswith("mlflow-artifacts/") else f"mlflow/{endpoint.path}"
        address = re.sub(r"{[\w.]+}", "x", f"/api/{endpoint.version}.0/{below}")
        answer = ann.http.request(endpoint.method, address, json=None if endpoint.method == "GET" else {})
        assert (answer.status_code, answer.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND"), endpoint
    for verb in ("create", "complete", "abort"):
        answer = ann.http.post(f"/api/2.0/mlflow-artifacts/mpu/{verb}/x", json={})
        assert (answer.status_code, answer.json()["error_code"]) == (501, "NOT_IMPLEMENTED")


def test_values_are_those_of_mlflows_server(ann: Person, original: httpx.Client) -> None:
    """What the server answers about a run, without the values that differ from server to server."""

    def logged(http: httpx.Client) -> dict[str, Any]:
        call = Recorder(http)
        made = call("POST", "runs/create", experiment_id="0", user_id="ann", run_name="values", start_time=T)
        run = made["run"]["info"]["run_id"]
        # MLflow's databases have no infinity, so its server answers the largest number in its place.
        values: list[float | str] = [0.25, "NaN", 1e-300, 3]
        points = [{"key": f"m{n}", "value": value, "timestamp": T, "step": n} for n, value in enumerate(values)]
        steps = enumerate((3, 7, 7, 5))
        points += [{"key": "again", "value": n, "timestamp": T - n, "step": step} for n, step in steps]
        call("POST", "runs/log-batch", run_id=run, metrics=points, params=[{"key": "p", "value": "é"}])
        call("POST", "runs/log-parameter", run_id=run, key="long", value="x" * 6000)
        call("POST", "runs/set-tag", run_id=run, key="t", value="1")
        call("POST", "runs/update", run_id=run, status="FAILED", end_time=T + 9)
        found = call("GET", "runs/get", run_id=run)["run"]
        history = call("GET", "metrics/get-history", run_id=run, metric_key="again")["metrics"]
        kept = ("run_name", "status", "start_time", "end_time", "lifecycle_stage")
        return {
            "info": {name: found["info"].get(name) for name in kept},
            "metrics": {
                of["key"]: (str(float(of["value"])), of["timestamp"], of["step"]) for of in found["data"]["metrics"]
            },
            "params": {of["key"]: of["value"] for of in found["data"]["params"]},
            "history": sorted((of["step"], of["timestamp"], of["value"]) for of in history),
        }

    assert logged(ann.http) == logged(original)
