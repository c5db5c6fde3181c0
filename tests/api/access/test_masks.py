"""What a program in a learner sends by MLflow's API is masked as what its agent sends."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from sqlalchemy import text
from tests.api.conftest import HELLO, Api, Person

from weft_api.access.masks import MASKS

_SECRET = "pä/s?w+rd-9"
_FORMS = {
    "plain": _SECRET,
    "url": f"db://me:{quote(_SECRET, safe='')}@host",
    "header": base64.b64encode(f"me:{_SECRET}".encode()).decode(),
    "both": f"a {_SECRET} and a {_SECRET}",
}
_MASKED = {"plain": "***", "url": "db://me:***@host", "both": "a *** and a ***"}


def _stored(api: Api) -> str:
    """All that the database holds."""
    with api.context.database.transaction() as session:
        tables = session.scalars(text("select tablename from pg_tables where schemaname = 'public'")).all()
        return "\n".join(
            row for table in tables for row in session.scalars(text(f"select cast(t.* as text) from {table} t"))
        )


def test_what_a_learner_sends_by_mlflow_is_masked(api: Api, ann: Person) -> None:
    ann.http.put("/api/v1/secrets/db", json={"value": _SECRET})
    job = ann.submit(HELLO + "secrets: {DB_PASSWORD: db}")["id"]
    attempt = api.attempt(job)
    token = attempt.agents[0].start()["mlflow"]["token"]
    learner = api.client(token)

    def call(path: str, method: str = "POST", **body: Any) -> dict[str, Any]:
        answer = learner.request(method, f"/api/2.0/mlflow/{path}", json=body)
        assert answer.status_code == 200, (path, answer.text)
        told: dict[str, Any] = answer.json()
        return told

    pairs = [{"key": key, "value": value} for key, value in _FORMS.items()]
    call("runs/update", run_id=job, run_name=_FORMS["both"])
    call("runs/log-batch", run_id=job, params=pairs, tags=[*pairs, {"key": "mine", "value": token}])
    call("runs/log-batch", run_id=job, metrics=[{"key": _SECRET, "value": 0.5, "timestamp": 1, "step": 1}])
    call("runs/log-metric", run_id=job, key=f"loss/{_SECRET}", value=0.5, timestamp=1, step=1)
    call("runs/log-parameter", run_id=job, key=f"of {_SECRET}", value=_SECRET)
    call("runs/set-tag", run_id=job, key="tag", value=_FORMS["url"])
    dataset = {"name": _SECRET, "digest": "1", "source_type": "url", "source": _FORMS["url"], "schema": _SECRET}
    call("runs/log-inputs", run_id=job, datasets=[{"dataset": dataset, "tags": pairs}])
    model = {"artifact_path": _SECRET, "flavors": {}, "utc_time_created": "", "run_id": job, "note": _SECRET}
    call("runs/log-model", run_id=job, model_json=json.dumps(model))
    child = call("runs/create", run_name=_SECRET, tags=[{"key": "mlflow.parentRunId", "value": job}, *pairs])
    logged = call("logged-models", name=_SECRET, experiment_id="0", source_run_id=job, params=pairs, tags=pairs)
    model_id = logged["model"]["info"]["model_id"]
    call(f"logged-models/{model_id}/tags", "PATCH", tags=[{"key": "later", "value": _SECRET}])

    stored = _stored(api)
    for form in (_SECRET, json.dumps(_SECRET)[1:-1], quote(_SECRET, safe=""), token):
        assert form not in stored
    seen = ann.http.get(f"/api/v1/jobs/{job}").json()
    assert {key: seen["params"][key] for key in _MASKED} == _MASKED
    assert seen["params"]["of ---"] == "***"
    assert seen["tags"]["mine"] == "***.0", "its rank is no secret"
    assert _SECRET.encode()[:4] not in base64.b64decode(seen["params"]["header"].replace("***", ""), validate=False)
    names = {entry["name"] for entry in ann.http.get(f"/api/v1/jobs/{job}/metrics").json()["series"]}
    assert names == {"---", "loss/---"}
    assert child["run"]["info"]["run_name"] == "***"
    # What a person logs with a token of the project is the person's own text.
    ann.http.post("/api/2.0/mlflow/runs/set-tag", json={"run_id": job, "key": "person", "value": _SECRET})
    assert ann.http.get(f"/api/v1/jobs/{job}").json()["tags"]["person"] == _SECRET


def test_credentials_of_stores_are_masked_and_ids_are_not(api: Api, ann: Person) -> None:
    ann.http.put("/api/v1/secrets/git", json={"value": "ann:git-pass"})
    job = ann.submit(HELLO)["id"]
    ann.http.put("/api/v1/secrets/id", json={"value": job[-6:]})
    with api.context.database.transaction() as session:
        session.execute(
            text("update jobs set manifest = manifest || cast(:more as jsonb) where id = :id"),
            {
                "id": job,
                "more": json.dumps(
                    {"secrets": {"ID": "id", "GONE": "gone"}, "repo": {"url": "https://h/r", "secret": "git"}}
                ),
            },
        )
    attempt = api.attempt(job)
    api.set_attempt(attempt, mlflow_sha256="0" * 64)
    mask = MASKS.of(api.context).of_attempt("0" * 64)
    assert mask.text(f"ann git-pass {job} {attempt.token}") == f"ann *** {job[:-6]}*** ***"
    assert MASKS.of(api.context).of_attempt("0" * 64) is mask
    assert MASKS.of(api.context).of_attempt("1" * 64).text("git-pass") == "git-pass"
