"""Sweeps over HTTP. Workers move them on: tests/workers/test_sweeping.py."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import func, select, update
from tests.api.conftest import Api, Person, code_of, zipped

from weft_api.sweeps import deleting
from weft_core.store.models import Job, JobMetric, Secret, SweepRow
from weft_workers.context import Context, make_context
from weft_workers.sweeping import Sweeps

_EPOCHS = {"name": "pytorch", "command": "python train.py --epochs ${sweep.epochs}"}


def manifest(**changes: Any) -> str:
    sweep = {"parameters": {"lr": {"log": [1e-4, 1e-1]}, "batch": [32, 64]}, "metric": "score", "trials": 6}
    told = {
        "name": "search",
        "framework": {"name": "pytorch", "command": "python train.py --lr ${sweep.lr}"},
        "sweep": {**sweep, **changes.pop("sweep", {})},
        **changes,
    }
    return yaml.safe_dump(told)


def submit(person: Person, body: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    answer = person.http.post("/api/v1/sweeps", json={"manifest": manifest(**changes), **(body or {})})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def problem(person: Person, text: str, **body: Any) -> dict[str, Any]:
    answer = person.http.post("/api/v1/sweeps", json={"manifest": text, **body})
    assert answer.status_code == 400, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def worker(api: Api) -> Any:
    made: Context = make_context(api.settings, "inst-test", {}, connections=4)
    yield Sweeps(made)
    made.close()


def trials(person: Person, sweep: str, **params: Any) -> list[dict[str, Any]]:
    answer = person.http.get(f"/api/v1/sweeps/{sweep}/trials", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["trials"]
    return found


def test_a_sweep_is_submitted_shown_and_moved_on(api: Api, ann: Person, worker: Sweeps) -> None:
    made = submit(ann, {"set": {"sweep.parallel": "3", "sweep.seed": "7"}})
    assert (made["state"], made["asked"], made["trials"], made["user"]) == ("RUNNING", 0, 6, ann.name)
    worker.run_due()
    shown = ann.http.get(f"/api/v1/sweeps/{made['id']}").json()
    assert (shown["asked"], shown["told"], shown["best"]) == (3, 0, None)
    assert shown["manifest"]["sweep"]["seed"] == 7
    assert [sweep["id"] for sweep in ann.http.get("/api/v1/sweeps").json()["sweeps"]] == [made["id"]]
    found = trials(ann, made["id"])
    assert [trial["job_state"] for trial in found] == ["QUEUED"] * 3
    job = ann.http.get(f"/api/v1/jobs/{found[1]['job']}").json()
    assert job["labels"] == {"sweep": made["id"], "trial": "1"}
    assert job["manifest"]["parameters"] == found[1]["parameters"]
    listed = ann.http.get("/api/v1/jobs", params={"label": f"sweep={made['id']}"}).json()["jobs"]
    assert len(listed) == 3


def test_learners_get_the_parameters(api: Api, ann: Person, worker: Sweeps) -> None:
    made = submit(ann, sweep={"parameters": {"lr": [0.5], "fast": {"values": [True], "set": "env.FAST"}}})
    worker.run_due()
    [trial, _] = trials(ann, made["id"])[:2]
    spec = api.attempt(trial["job"]).agents[0].start()
    assert spec["command"] == "python train.py --lr 0.5"
    assert spec["parameters"] == {"lr": 0.5, "fast": True}
    assert {key: spec["env"][key] for key in ("FAST", "WEFT_SWEEP_LR", "WEFT_SWEEP_FAST")} == {
        "FAST": "true",
        "WEFT_SWEEP_LR": "0.5",
        "WEFT_SWEEP_FAST": "true",
    }


def test_a_trial_that_may_go_on_is_not_registered(api: Api, ann: Person, worker: Sweeps) -> None:
    rungs = {"parameter": "epochs", "max": 2, "reduction": 2}
    batch = {"values": [1], "set": "cpus"}  # its values are tried in a whole manifest
    made = submit(ann, sweep={"search": "asha", "parameters": {"batch": batch}, "rungs": rungs}, framework=_EPOCHS)
    worker.run_due()
    trial = trials(ann, made["id"])[0]
    assert trial["parameters"] == {"batch": 1, "epochs": 1}
    assert api.attempt(trial["job"]).agents[0].start()["command"] == "python train.py --epochs 1"
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(trial["job"], state)
    answer = ann.http.post("/api/v1/models/best/versions", json={"job": trial["job"]})
    assert (answer.status_code, code_of(answer)) == (409, "conflict")
    assert f"a trial of {made['id']}" in answer.json()["detail"]


def test_a_trial_reads_the_stored_checkpoint_of_another_one_and_writes_nothing_there(
    api: Api, ann: Person, worker: Sweeps
) -> None:
    search = {"search": "pbt", "population": 4, "parallel": 4, "rungs": {"parameter": "epochs", "max": 2, "every": 1}}
    made = submit(ann, sweep={**search, "trials": 8, "parameters": {"batch": [1, 2]}}, framework=_EPOCHS)
    refused = ann.http.post(f"/api/v1/sweeps/{made['id']}/trials", json={})
    assert (refused.status_code, code_of(refused)) == (409, "conflict")
    worker.run_due()
    first = trials(ann, made["id"])
    agent = api.attempt(first[0]["job"]).agents[0]
    agent.start()
    refused = agent.post("objects", space="shared", op="list")
    assert (refused.status_code, code_of(refused)) == (400, "invalid_request")
    with api.context.database.transaction() as session:
        for trial in first:
            value = float(trial["number"])
            row = {"name": made["metric"], "rank": 0, "last": value, "min": value, "max": value}
            session.add(JobMetric(job_id=trial["job"], project_id=ann.project_id, **row))
            api.context.objects.put(f"jobs/{ann.project_id}/{trial['job']}/checkpoints/files/x", trial["job"].encode())
    for trial in first:
        for state in ("PENDING", "PROCESSING", "COMPLETED"):
            api.set_state(trial["job"], state)
    worker.run_due()
    second = trials(ann, made["id"])[4:]
    assert [trial["parent"] for trial in second] == [3, 1, 2, 3]
    agent = api.attempt(second[0]["job"]).agents[0]
    spec = agent.start()
    assert (spec["shared_from"], spec["shared_checkpoints"], spec["has_checkpoint"]) == (first[3]["job"], None, True)
    assert agent.post("objects", space="shared", op="list").json()["objects"] == [{"key": "files/x", "size": 16}]
    url = agent.post("objects", space="shared", op="get", keys=["files/x"]).json()["urls"]["files/x"]
    assert httpx.get(url, timeout=300).text == first[3]["job"]
    for op in ("put", "delete"):
        assert agent.post("objects", space="shared", op=op, keys=["files/x"]).status_code == 400
    refused = ann.http.delete(f"/api/v1/jobs/{first[3]['job']}")
    assert (refused.status_code, code_of(refused)) == (409, "conflict")
    assert "begins with its checkpoint and has not ended" in refused.json()["detail"]


@pytest.mark.parametrize("jobs", [False, True])
def test_a_sweep_that_has_ended_is_deleted(
    ann: Person, bob: Person, worker: Sweeps, monkeypatch: pytest.MonkeyPatch, jobs: bool
) -> None:
    monkeypatch.setattr(deleting, "_BATCH", 2)
    path = f"/api/v1/sweeps/{submit(ann, sweep={'parallel': 3})['id']}"
    worker.run_due()
    refused = ann.http.delete(path)
    assert (refused.status_code, code_of(refused)) == (409, "conflict")
    assert "the sweep is RUNNING" in refused.json()["detail"]
    trial_jobs = [trial["job"] for trial in trials(ann, path.rpartition("/")[2])]
    ann.http.post(f"{path}/stop")
    with worker._context.database.transaction() as session:
        session.execute(update(Job).where(Job.id.in_(trial_jobs)).values(state="HALTED", ended_at=func.now()))
    worker.run_due()
    assert bob.http.delete(path).status_code == 404
    assert ann.http.delete(path, params={"jobs": jobs}).status_code == 204
    assert ann.http.get(path).status_code == 404
    assert ann.http.delete(path).status_code == 404
    desired = {ann.http.get(f"/api/v1/jobs/{job}").json()["desired"] for job in trial_jobs}
    assert ("DELETED" in desired, len(desired), len(trial_jobs)) == (jobs, 1, 3)


def test_a_rerun_of_a_trial_may_have_another_value(api: Api, ann: Person, worker: Sweeps) -> None:
    made = submit(ann)
    worker.run_due()
    trial = trials(ann, made["id"])[0]
    again = ann.http.post(f"/api/v1/jobs/{trial['job']}/rerun", json={"set": {"parameters.lr": "0.25"}})
    assert again.status_code == 201, again.text
    spec = api.attempt(again.json()["id"]).agents[0].start()
    assert spec["command"] == "python train.py --lr 0.25"
    assert spec["parameters"] == {**trial["parameters"], "lr": 0.25}
    assert "sweep" not in again.json()["labels"]


def test_trials_have_the_code_and_the_credentials_of_their_sweep(api: Api, ann: Person, worker: Sweeps) -> None:
    store = {
        "id": "cos",
        "connection": {"auth_url": "https://s3.example.org", "user_name": "ann", "password": "sesame-open"},
    }
    text = manifest(data_stores=[store])
    answer = ann.http.post(
        "/api/v1/sweeps", data={"manifest": text}, files={"code": ("code.zip", zipped(train__py="print(1)"))}
    )
    assert answer.status_code == 201, answer.text
    sweep = answer.json()["id"]
    assert "sesame-open" not in ann.http.get(f"/api/v1/sweeps/{sweep}").text
    assert "sesame-open" not in ann.http.get(f"/api/v1/sweeps/{sweep}/manifest").text
    worker.run_due()
    with api.context.database.transaction() as session:
        row = session.get_one(SweepRow, sweep)
        assert row.credentials is not None
        assert b"sesame" not in row.credentials
        jobs = session.scalars(select(Job).where(Job.labels["sweep"].astext == sweep)).all()
        assert {job.code_sha256 for job in jobs} == {row.code_sha256}
        kept = session.scalars(select(Secret).where(Secret.job_id.in_([job.id for job in jobs]))).all()
        assert len(kept) == len(jobs) == 2
        assert all("sesame-open" in api.context.box.decrypt(secret.ciphertext) for secret in kept)


def test_the_same_key_makes_one_sweep(ann: Person) -> None:
    answers = [
        ann.http.post("/api/v1/sweeps", json={"manifest": manifest()}, headers={"Idempotency-Key": "k1"})
        for _ in range(2)
    ]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert len(ann.http.get("/api/v1/sweeps").json()["sweeps"]) == 1


def test_what_is_no_sweep_is_refused(ann: Person) -> None:
    plain = "name: x\nframework: {name: pytorch, command: echo hello}\n"
    assert "sweep: missing" in problem(ann, plain)["detail"]
    answer = ann.http.post("/api/v1/jobs", json={"manifest": manifest()})
    assert "weft sweep" in answer.json()["detail"]
    assert problem(ann, manifest(), keepalive={"seconds": 60})["problems"][0]["path"] == "body.keepalive"
    validated = ann.http.post("/api/v1/manifests:validate", content=manifest(), headers={"content-type": "text/yaml"})
    assert validated.json()["manifest"]["sweep"]["trials"] == 6


def test_values_of_other_keys_are_tried_at_submit(ann: Person) -> None:
    text = manifest(sweep={"parameters": {"size": {"values": [1, "many"], "set": "learners"}}})
    text = text.replace(" --lr ${sweep.lr}", "")
    detail = problem(ann, text)["detail"]
    assert "sweep.parameters.size: its value 'many' is refused" in detail
    assert "learners: expected a whole number" in detail


def test_a_sweep_is_paused_resumed_and_stopped(ann: Person, worker: Sweeps) -> None:
    sweep = submit(ann)["id"]
    paused = ann.http.post(f"/api/v1/sweeps/{sweep}/pause").json()
    assert (paused["state"], paused["reason"]) == ("PAUSED", f"paused by {ann.name}")
    worker.run_due()
    assert trials(ann, sweep) == []
    assert ann.http.post(f"/api/v1/sweeps/{sweep}/resume").json()["state"] == "RUNNING"
    worker.run_due()
    assert len(trials(ann, sweep)) == 2
    stopped = ann.http.post(f"/api/v1/sweeps/{sweep}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (202, "STOPPING")
    worker.run_due()
    for trial in trials(ann, sweep):
        assert ann.http.get(f"/api/v1/jobs/{trial['job']}").json()["desired"] == "HALTED"
    for verb in ("pause", "resume"):
        answer = ann.http.post(f"/api/v1/sweeps/{sweep}/{verb}")
        assert (answer.status_code, code_of(answer)) == (409, "conflict")
    assert ann.http.post(f"/api/v1/sweeps/{sweep}/stop").status_code == 202


def test_a_program_asks_and_tells(api: Api, ann: Person, worker: Sweeps) -> None:
    sweep = submit(ann, sweep={"search": "manual", "goal": "min", "trials": 3})["id"]
    worker.run_due()
    assert trials(ann, sweep) == []  # a manual sweep makes no trial by itself
    path = f"/api/v1/sweeps/{sweep}/trials"
    answer = ann.http.post(path)
    assert answer.json()["problems"][0]["path"] == "body.parameters"
    answer = ann.http.post(path, json={"parameters": {"lr": 5, "batsch": 32}})
    assert {problem["path"] for problem in answer.json()["problems"]} == {
        "body.parameters.batch",
        "body.parameters.batsch",
        "body.parameters.lr",
    }
    key = {"Idempotency-Key": "a1"}
    mine = [ann.http.post(path, json={"parameters": {"lr": 0.01, "batch": 64}}, headers=key).json() for _ in range(2)]
    assert mine[0]["number"] == mine[1]["number"] == 0
    assert mine[0]["job_state"] == "QUEUED"
    values = (0.5, 0.25)
    for value in values:
        asked = ann.http.post(path, json={"parameters": {"lr": value / 10, "batch": 32}, "run": False})
        assert (asked.status_code, asked.json()["job"]) == (201, None), asked.text
        result = f"{path}/{asked.json()['number']}/result"
        for _ in range(2):  # the same once more is no mistake
            told = ann.http.put(result, json={"value": value})
            assert (told.json()["state"], told.json()["value"]) == ("COMPLETED", value)
        assert ann.http.put(result, json={"value": 9.0}).status_code == 409
    assert ann.http.put(f"{path}/0/result", json={"value": 1.0}).status_code == 409
    assert ann.http.put(f"{path}/1/result", json={}).status_code == 400
    assert ann.http.post(path, json={"parameters": {"lr": 0.01, "batch": 64}}).status_code == 409
    shown = ann.http.get(f"/api/v1/sweeps/{sweep}").json()
    assert (shown["asked"], shown["told"], shown["best"]["number"]) == (3, 2, 2)
    assert [trial["value"] for trial in trials(ann, sweep, sort="best")] == [0.25, 0.5]


def test_a_search_answers_who_asks(ann: Person) -> None:
    sweep = submit(ann, sweep={"search": "tpe"})["id"]
    asked = ann.http.post(f"/api/v1/sweeps/{sweep}/trials", json={"run": False})
    assert asked.status_code == 201, asked.text
    assert set(asked.json()["parameters"]) == {"lr", "batch"}


def test_the_importance_of_parameters_comes_with_the_trials(ann: Person) -> None:
    path = f"/api/v1/sweeps/{submit(ann, sweep={'search': 'random', 'trials': 12})['id']}"

    def told(number: int) -> None:
        asked = ann.http.post(f"{path}/trials", json={"run": False}).json()
        value = 1.0 if asked["parameters"]["lr"] > 0.003 else 0.0
        ann.http.put(f"{path}/trials/{number}/result", json={"value": value + number / 1000})

    told(0)
    assert ann.http.get(f"{path}/importance").json() == {"trials": 1, "parameters": []}
    for number in range(1, 12):
        told(number)
    shown = ann.http.get(f"{path}/importance").json()
    assert shown["trials"] == 12
    assert [parameter["name"] for parameter in shown["parameters"]] == ["lr", "batch"]
    assert sum(parameter["share"] for parameter in shown["parameters"]) == pytest.approx(1)
    assert ann.http.get(f"{path}/importance").json() == shown


def test_pages(ann: Person) -> None:
    made = [submit(ann)["id"] for _ in range(3)]
    first = ann.http.get("/api/v1/sweeps", params={"limit": 2}).json()
    second = ann.http.get("/api/v1/sweeps", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [sweep["id"] for sweep in (*first["sweeps"], *second["sweeps"])] == made[::-1]
    assert second["next_cursor"] is None
    path = f"/api/v1/sweeps/{made[0]}/trials"
    for _ in range(3):
        ann.http.post(path, json={"run": False})
    for number in range(3):
        ann.http.put(f"{path}/{number}/result", json={"value": float(number)})
    for sort, order in (("number", [0, 1, 2]), ("best", [2, 1, 0])):
        page = ann.http.get(path, params={"limit": 2, "sort": sort}).json()
        rest = ann.http.get(path, params={"limit": 2, "sort": sort, "cursor": page["next_cursor"]}).json()
        assert [trial["number"] for trial in (*page["trials"], *rest["trials"])] == order
        assert rest["next_cursor"] is None
    assert ann.http.get(path, params={"cursor": "x"}).status_code == 400


def test_a_viewer_reads_and_another_project_finds_nothing(api: Api, ann: Person, bob: Person) -> None:
    sweep = submit(ann)["id"]
    viewer = api.person("viewer", ann.project_id)
    path = f"/api/v1/sweeps/{sweep}"
    asks: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", f"{path}/pause", None),
        ("POST", f"{path}/resume", None),
        ("POST", f"{path}/stop", None),
        ("POST", f"{path}/trials", {"run": False}),
        ("PUT", f"{path}/trials/0/result", {"value": 1.0}),
    ]
    for method, where, body in asks:
        assert viewer.http.request(method, where, json=body).status_code == 403
        assert bob.http.request(method, where, json=body).status_code == 404
    for where in (path, f"{path}/trials", f"{path}/manifest", f"{path}/importance"):
        assert viewer.http.get(where).status_code == 200
        assert bob.http.get(where).status_code == 404
    assert bob.http.get("/api/v1/sweeps").json()["sweeps"] == []
    assert ann.http.get("/api/v1/sweeps/" + "x" * 200).status_code == 404
