"""Jobs that start after other jobs, at the API: what is refused, and what is shown."""

from __future__ import annotations

from sqlalchemy import update
from tests.api.conftest import HELLO, Api, Person

from weft_core.store.models import Job


def set_state(api: Api, job_id: str, state: str) -> None:
    with api.context.database.transaction() as session:
        session.execute(update(Job).where(Job.id == job_id).values(state=state))


def test_a_job_waits_for_another_one(api: Api, ann: Person) -> None:
    first = ann.submit()["id"]
    job = ann.submit(set={"after": first})
    assert (job["state"], job["reason"]) == ("QUEUED", f"waiting for {first} to complete")
    detail = ann.http.get(f"/api/v1/jobs/{job['id']}").json()
    assert detail["queue_position"] is None, "it is in no queue"
    assert detail["manifest"]["after"] == [{"job": first, "on": "completed"}]
    assert detail["after"] == [{"job": first, "on": "completed", "state": "QUEUED", "ended_at": None}]
    assert ann.http.get(f"/api/v1/jobs/{first}").json()["awaited_by"] == [job["id"]]
    events = ann.http.get(f"/api/v1/jobs/{job['id']}/events").json()["events"]
    assert [event["message"] for event in events] == ["submitted to engine local", job["reason"]]
    again = ann.http.post(f"/api/v1/jobs/{job['id']}/rerun", json={})
    assert again.json()["reason"] == "waiting for admission", "a rerun starts now"


def test_a_job_that_would_never_start_is_refused(api: Api, ann: Person, bob: Person) -> None:
    theirs, failed, halted, done = bob.submit()["id"], ann.submit()["id"], ann.submit()["id"], ann.submit()["id"]
    for job, state in ((failed, "FAILED"), (halted, "HALTED"), (done, "COMPLETED")):
        set_state(api, job, state)
    after = {
        "after[0].job": theirs,
        "after[1].job": failed,
        "after[2].job": halted,
        "after[3].job": done,
        "after[3].on": "failed",
    }
    answer = ann.http.post("/api/v1/jobs", json={"manifest": HELLO, "set": after})
    assert answer.status_code == 400, answer.text
    found = {problem["path"]: problem["message"] for problem in answer.json()["problems"]}
    assert found == {
        "after[0]": f"no job {theirs} in this project",
        "after[1]": f"{failed} is FAILED, so a job that starts only when it has completed would never start",
        "after[3]": f"{done} is COMPLETED, so a job that starts only when it has failed would never start",
    }
