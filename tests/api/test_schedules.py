"""Schedules over HTTP. Workers start their jobs: tests/workers/test_scheduling.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from sqlalchemy import func, select, update
from tests.api.conftest import Api, Person, zipped

from weft_api.schedules import service
from weft_core.store import registry
from weft_core.store.models import Job, ScheduleRow, Secret
from weft_workers.context import Context, make_context
from weft_workers.scheduling import Schedules

PATH = "/api/v1/schedules"


def manifest(**keys: Any) -> str:
    told = {"name": "nightly", "framework": {"name": "pytorch", "command": "python train.py"}, **keys}
    return yaml.safe_dump(told)


def create(person: Person, **keys: Any) -> dict[str, Any]:
    answer = person.http.post(PATH, json={"manifest": manifest(**keys)})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def refused(person: Person, **keys: Any) -> dict[str, str]:
    answer = person.http.post(PATH, json={"manifest": manifest(**keys)})
    assert answer.status_code == 400, answer.text
    return {problem["path"]: problem["message"] for problem in answer.json()["problems"]}


def starts(person: Person, schedule: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person.http.get(f"{PATH}/{schedule}/starts").raise_for_status().json()["starts"]
    return found


def model(api: Api, person: Person, name: str) -> None:
    """A model with two versions."""
    jobs = [person.submit()["id"] for _ in range(2)]
    with api.context.database.transaction() as session:
        for job in jobs:
            registry.register(session, session.get_one(Job, job), name)


@pytest.fixture(scope="module")
def worker(api: Api) -> Any:
    made: Context = make_context(api.settings, "inst-test", {}, connections=4)
    yield Schedules(made)
    made.close()


def test_a_schedule_is_created_shown_and_starts_its_job(api: Api, ann: Person, worker: Schedules) -> None:
    made = create(ann, schedule={"cron": "0 3 1 1 *", "timezone": "Europe/Berlin"})
    assert (made["state"], made["cron"], made["overlap"], made["user"]) == ("ACTIVE", "0 3 1 1 *", "skip", ann.name)
    following = datetime.fromisoformat(made["next_at"]).astimezone(UTC)
    assert (following.month, following.day, following.hour) == (1, 1, 2), "three o'clock in Berlin"
    assert made["last"] is None
    with api.context.database.transaction() as session:
        due = func.now() - func.make_interval(1)
        session.execute(update(ScheduleRow).where(ScheduleRow.id == made["id"]).values(due_at=due, next_step_at=due))
    worker.run_due()
    shown = ann.http.get(f"{PATH}/{made['id']}").json()
    assert (shown["last"]["trigger"], shown["last"]["state"], shown["last"]["job_state"]) == (
        "time",
        "STARTED",
        "QUEUED",
    )
    assert shown["manifest"]["schedule"]["cron"] == "0 3 1 1 *"
    assert starts(ann, made["id"]) == [shown["last"]]
    listed = ann.http.get("/api/v1/jobs", params={"label": f"schedule={made['id']}"}).json()["jobs"]
    assert [job["id"] for job in listed] == [shown["last"]["job"]]
    spec = api.attempt(shown["last"]["job"]).agents[0].start()
    assert spec["env"]["WEFT_SCHEDULE"] == made["id"]
    assert spec["env"]["WEFT_DUE_AT"] == shown["last"]["due_at"]
    assert PATH + "/" + made["id"] in [f"{PATH}/{each['id']}" for each in ann.http.get(PATH).json()["schedules"]]
    again = yaml.safe_load(ann.http.get(f"{PATH}/{made['id']}/manifest").text)
    assert again["schedule"] == {"cron": "0 3 1 1 *", "timezone": "Europe/Berlin", "overlap": "skip"}


def test_a_promotion_starts_a_job_with_its_version(api: Api, ann: Person, worker: Schedules) -> None:
    model(api, ann, "digits")
    made = create(ann, on="digits@production")
    assert (made["on"], made["cron"], made["next_at"]) == ("digits@production", None, None)
    early = ann.http.post(f"{PATH}/{made['id']}/starts")
    assert early.status_code == 409
    assert "has no stage 'production'" in early.json()["detail"]
    ann.http.put("/api/v1/models/digits/stages/production", json={"version": "2"}).raise_for_status()
    worker.run_due()
    (start,) = starts(ann, made["id"])
    assert (start["trigger"], start["version"], start["user"], start["state"]) == ("promotion", 2, ann.name, "STARTED")
    env = api.attempt(start["job"]).agents[0].start()["env"]
    promoted = {name: value for name, value in env.items() if name.startswith("WEFT_PROMOTED")}
    wanted = {"MODEL": "digits", "STAGE": "production", "VERSION": "2"}
    assert promoted == {f"WEFT_PROMOTED_{name}": value for name, value in wanted.items()}
    rerun = ann.http.post(f"/api/v1/jobs/{start['job']}/rerun", json={}).raise_for_status().json()["id"]
    assert api.attempt(rerun).agents[0].start()["env"]["WEFT_PROMOTED_VERSION"] == "2", "as the first time"


def test_a_job_is_started_on_request_once(ann: Person) -> None:
    made = create(ann, schedule="0 3 1 1 *")
    ann.http.post(f"{PATH}/{made['id']}/pause").raise_for_status()
    twice = [ann.http.post(f"{PATH}/{made['id']}/starts", headers={"Idempotency-Key": "now"}) for _ in range(2)]
    assert [answer.status_code for answer in twice] == [201, 201]
    assert twice[0].json()["job"] == twice[1].json()["job"]
    second = ann.http.post(f"{PATH}/{made['id']}/starts").raise_for_status().json()
    assert (second["trigger"], second["user"]) == ("request", ann.name)
    jobs = [ann.http.get(f"/api/v1/jobs/{start['job']}").json() for start in starts(ann, made["id"])]
    assert [job["reason"] for job in jobs] == ["waiting for admission"] * 2, "beside the first"


def test_it_is_paused_resumed_and_deleted(api: Api, ann: Person) -> None:
    made = create(ann, schedule="0 3 1 1 *")
    path = f"{PATH}/{made['id']}"
    paused = ann.http.post(f"{path}/pause").json()
    assert (paused["state"], paused["reason"], paused["next_at"]) == ("PAUSED", f"paused by {ann.name}", None)
    resumed = ann.http.post(f"{path}/resume").json()
    assert (resumed["state"], resumed["reason"], resumed["next_at"]) == ("ACTIVE", "", made["next_at"])
    job = ann.http.post(f"{path}/starts").raise_for_status().json()["job"]
    assert ann.http.delete(path).status_code == 204
    assert ann.http.get(path).status_code == 404
    assert ann.http.get(f"/api/v1/jobs/{job}").status_code == 200, "its jobs stay"


def test_nobody_lets_it_act_for_an_owner_without_the_right(api: Api, ann: Person, bob: Person) -> None:
    made = create(ann, schedule="0 3 1 1 *")
    with api.context.database.transaction() as session:
        session.execute(update(ScheduleRow).where(ScheduleRow.id == made["id"]).values(user_id=bob.user_id))
    for verb in ("starts", "resume"):
        answer = ann.http.post(f"{PATH}/{made['id']}/{verb}")
        assert answer.status_code == 409
        assert "its owner may not submit jobs to this project" in answer.json()["detail"]


def test_jobs_have_the_code_and_the_credentials_of_their_schedule(api: Api, ann: Person) -> None:
    connection = {"auth_url": "https://s3.example.org", "user_name": "ann", "password": "sesame-open"}
    text = manifest(schedule="0 3 1 1 *", data_stores=[{"id": "cos", "connection": connection}])
    code = {"code": ("code.zip", zipped(train__py="print(1)"))}
    made = ann.http.post(PATH, data={"manifest": text}, files=code).raise_for_status().json()
    path = f"{PATH}/{made['id']}"
    assert "sesame-open" not in ann.http.get(path).text + ann.http.get(f"{path}/manifest").text
    job = ann.http.post(f"{path}/starts").raise_for_status().json()["job"]
    with api.context.database.transaction() as session:
        row = session.get_one(ScheduleRow, made["id"])
        assert row.credentials is not None
        assert b"sesame" not in row.credentials
        (kept,) = session.scalars(select(Secret).where(Secret.job_id == job))
        assert "sesame-open" in api.context.box.decrypt(kept.ciphertext)
        assert ann.http.get(f"/api/v1/jobs/{job}").json()["code_sha256"] == row.code_sha256


def test_a_manifest_that_is_no_schedule_is_refused(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(ann) == {
        "schedule": "missing: nothing says when its jobs start; expected schedule: '0 3 * * *', or on: MODEL@STAGE"
    }
    for cron, message in (
        ("0 3 * *", "expected 5 fields (minute, hour, day, month, day of the week), found 4"),
        ("0 25 * * *", "the hour, '25', is out of its range"),
        ("@daily", "expected 5 fields (minute, hour, day, month, day of the week), found 1"),
        ("0 0 30 2 *", "no day matches it"),
        ("x * * * *", "the minute, 'x', is none of *, 5, 1-5, */15, 1,2 and a name such as MON"),
    ):
        assert refused(ann, schedule=cron) == {"schedule": message}
    assert refused(ann, schedule={"cron": "0 3 * * *", "timezone": "Mars/Olympus"}) == {
        "schedule.timezone": "there is no time zone 'Mars/Olympus'"
    }
    job = ann.submit()["id"]
    assert refused(ann, schedule="0 3 * * *", after=job) == {
        "schedule": "the jobs of a schedule wait for no other jobs: leave out after"
    }
    assert refused(ann, on="digits@latest") == {"on": "latest is no stage, and no promotion leads to it"}
    direct = ann.http.post("/api/v1/jobs", json={"manifest": manifest(schedule="0 3 * * *")}).json()
    assert direct["problems"][0]["path"] == "schedule"
    assert "weft schedule create" in direct["problems"][0]["message"]
    monkeypatch.setattr(service, "_MOST", 0)
    full = ann.http.post(PATH, json={"manifest": manifest(schedule="0 3 * * *")})
    assert full.status_code == 409
    assert "accepted are at most 0" in full.json()["detail"]


def test_other_projects_have_no_part_in_it(ann: Person, bob: Person) -> None:
    made = create(ann, schedule="0 3 1 1 *")
    path = f"{PATH}/{made['id']}"
    assert bob.http.get(PATH).json()["schedules"] == []
    answers = [bob.http.get(path), bob.http.get(f"{path}/starts"), bob.http.post(f"{path}/starts")]
    answers += [bob.http.post(f"{path}/{verb}") for verb in ("pause", "resume")] + [bob.http.delete(path)]
    assert {answer.status_code for answer in answers} == {404}
    assert ann.http.get(path).json()["state"] == "ACTIVE"
