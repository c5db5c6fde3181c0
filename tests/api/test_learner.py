"""The learner's API: each grant is given once, a stale attempt gets none, and the gang meets."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from sqlalchemy import select
from tests.api.conftest import HELLO, Agent, Api, Attempted, Person, code_of, zipped

from weft_api.access.attempts import AttemptToken
from weft_api.context import Context
from weft_api.http.problems import STALE_ATTEMPT
from weft_api.learner import heartbeats, service
from weft_api.learner.schemas import HeartbeatAnswer, HeartbeatCall
from weft_core.launch import LearnerSpec
from weft_core.settings import ProfileSettings, Settings
from weft_core.store.models import Event, Job, Learner
from weft_core.tokens import hash_token


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    return api.attempt(ann.submit(set={"learners": "2"})["id"])


def _learner(api: Api, attempt: Attempted, rank: int) -> Learner:
    with api.context.database.transaction() as session:
        return session.get_one(Learner, (attempt.id, rank))


def _not_due(api: Api, job_id: str) -> None:
    with api.context.database.transaction() as session:
        session.get_one(Job, job_id).next_step_at = datetime.now(UTC) + timedelta(days=1)


def _is_due(api: Api, job_id: str) -> bool:
    with api.context.database.transaction() as session:
        at = session.get_one(Job, job_id).next_step_at
        return at is not None and at < datetime.now(UTC) + timedelta(hours=1)


def test_the_spec_has_all_that_a_learner_needs(api: Api, ann: Person) -> None:
    ann.http.put("/api/v1/secrets/wandb", json={"value": "s3cr3t"})
    bundle = zipped(train__py="pass")
    manifest = (
        HELLO + "env: {A: b}\nsecrets: {KEY: wandb}\nlearners: 2\ncheckpoint: {every: 10s, keep: 2}\nmax_runtime: 1h"
    )
    job = ann.http.post("/api/v1/jobs", data={"manifest": manifest}, files={"code": bundle}).json()
    attempt = api.attempt(job["id"])
    spec = LearnerSpec.model_validate(attempt.agents[1].start())
    assert (spec.job_id, spec.attempt, spec.rank, spec.learners) == (job["id"], 1, 1, 2)
    assert (spec.command, spec.launcher, spec.env) == ("echo hello", "torchrun", {"A": "b", "KEY": "s3cr3t"})
    assert spec.secrets == ["KEY"]
    assert (spec.checkpoint.every_seconds, spec.checkpoint.keep, spec.max_runtime_seconds) == (10, 2, 3600)
    assert (spec.results, spec.checkpoints) == (None, None)
    assert spec.code is not None
    assert (spec.code.sha256, spec.code.size) == (job["code_sha256"], len(bundle))
    assert httpx.get(spec.code.url, timeout=300).content == bundle


def test_the_spec_names_the_profiles_other_resources(api_settings: Settings) -> None:
    profiles = {"gaudi": ProfileSettings(extra={"habana.ai/gaudi": 1})}
    api = Api(api_settings.model_copy(update={"profiles": profiles}))
    try:
        job = api.person().submit(HELLO + "profile: gaudi")
        assert api.attempt(job["id"]).agents[0].start()["extra"] == {"habana.ai/gaudi": 1}
    finally:
        api.stop()


def test_one_start_grant_for_each_rank(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    _not_due(api, gang.job_id)
    first = agent.start()
    assert _is_due(api, gang.job_id), "the workers have to see it"
    again = agent.start()
    for spec in (first, again):
        spec.pop("code", None)
    assert first == again, "a repeated call of the same agent gets the same answer"
    other = Agent(agent.http, 0)
    answer = other.post("start", hostname="there")
    assert (answer.status_code, code_of(answer)) == (409, "already_granted")
    assert code_of(other.post("exit", exit_code=0, reason="", last_lines=[])) == "stale_attempt"
    assert _learner(api, gang, 0).phase == "STARTED"
    assert _learner(api, gang, 1).phase == "WAITING"


def test_of_many_agents_at_the_same_time_one_gets_the_grant(gang: Attempted) -> None:
    agents = [Agent(gang.agents[0].http, 0) for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(lambda agent: agent.post("start", hostname="x").status_code, agents))
    assert sorted(codes) == [200] + [409] * 11


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("start", {"hostname": "h"}),
    ("address", {"address": "10.0.0.1", "ports": [1]}),
    ("phase", {"phase": "PROCESSING"}),
    ("heartbeat", {}),
    ("logs", {"sequence": 0, "lines": [{"t": 0, "s": "late"}]}),
    ("report", {"logs": {"sequence": 0, "lines": [{"t": 0, "s": "late"}]}}),
    ("stacks", {"request": "x", "report": {}}),
    ("storing", {"exit_code": 0}),
    ("objects", {"space": "results", "op": "put", "keys": ["a"]}),
    ("exit", {"exit_code": 0, "reason": "", "last_lines": []}),
]


def test_a_stale_attempt_gets_410_for_everything(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    api.end_attempt(gang)
    api.attempt(gang.job_id)
    for verb, body in CALLS:
        answer = agent.post(verb, **body)
        assert (verb, answer.status_code, code_of(answer)) == (verb, 410, "stale_attempt")
    assert code_of(agent.http.get("/api/v1/learner/peers?rank=0&wait=5")) == "stale_attempt"
    assert ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs").json()["lines"] == []


def test_unknown_tokens(api: Api, ann: Person, gang: Attempted) -> None:
    for token, status in (("weft_a_" + "x" * 43, 410), (ann.token, 401), ("nonsense", 401), (None, 401)):
        agent = Agent(api.client(token), 0)
        for verb, body in CALLS:
            assert agent.post(verb, **body).status_code == status
        assert agent.http.get("/api/v1/learner/peers?rank=0").status_code == status
    answer = gang.agents[0].http.get("/api/v1/jobs")
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), "an attempt's token opens nothing else"


def test_ranks_out_of_range_and_wrong_bodies(gang: Attempted) -> None:
    http = gang.agents[0].http
    for rank in (2, 99_999):
        answer = Agent(http, rank).post("start", hostname="x")
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        assert http.get(f"/api/v1/learner/peers?rank={rank}").status_code == 400
    for wrong in (-1, 10**9, "x", None):
        assert http.post("/api/v1/learner/start", json={"rank": wrong, "instance": "i"}).status_code == 400
    for verb, _ in CALLS:
        for body in (b"", b"{}", b"[]", b"\xff", b"null", b'{"rank": 0, "instance": "\\u0000"}'):
            assert http.post(f"/api/v1/learner/{verb}", content=body).status_code == 400


def test_an_attempt_that_is_to_stop_starts_no_one(api: Api, gang: Attempted) -> None:
    api.set_attempt(gang, stop_requested_at=datetime.now(UTC))
    assert code_of(gang.agents[0].post("start", hostname="x")) == "stale_attempt"
    assert _learner(api, gang, 0).instance is None


def test_a_secret_that_is_gone_fails_the_learner_with_the_reason(api: Api, ann: Person) -> None:
    ann.http.put("/api/v1/secrets/wandb", json={"value": "s3cr3t"})
    attempt = api.attempt(ann.submit(HELLO + "secrets: {KEY: wandb}")["id"])
    assert ann.http.delete("/api/v1/secrets/wandb").status_code == 204
    assert code_of(attempt.agents[0].post("start", hostname="x")) == "stale_attempt"
    learner = _learner(api, attempt, 0)
    assert (learner.phase, learner.exit_code) == ("EXITED", 1)
    assert learner.exit_reason == "the secret 'wandb' that the manifest names has been deleted"


def test_peers_meet(gang: Attempted) -> None:
    first, second = gang.agents
    first.start(), second.start()
    assert first.post("address", address="10.0.0.1", ports=[1, 2]).status_code == 204
    answer = first.http.get("/api/v1/learner/peers?rank=0").json()
    assert answer["ready"] is False
    assert answer["peers"][1]["address"] is None
    late = threading.Timer(0.3, lambda: second.post("address", address="fe80::1", ports=[3]))
    late.start()
    asked = time.monotonic()
    answer = first.http.get("/api/v1/learner/peers?rank=0&wait=30").json()
    assert time.monotonic() - asked < 25, "it answers when the peer is there, not at the end of the wait"
    assert answer["ready"] is True
    assert [(peer["rank"], peer["address"], peer["ports"]) for peer in answer["peers"]] == [
        (0, "10.0.0.1", [1, 2]),
        (1, "fe80::1", [3]),
    ]
    first.post("phase", phase="PROCESSING")
    assert first.http.get("/api/v1/learner/peers?rank=0&phase=PROCESSING").json()["ready"] is False
    second.post("phase", phase="PROCESSING")
    assert first.http.get("/api/v1/learner/peers?rank=0&phase=PROCESSING").json()["ready"] is True


@pytest.mark.slow
def test_a_hundred_waiting_learners_leave_the_api_free(api: Api, ann: Person) -> None:
    attempt = api.attempt(ann.submit(set={"learners": "101"})["id"])
    with (
        httpx.Client(
            base_url=api.url,
            headers={"Authorization": f"Bearer {attempt.token}"},
            timeout=300,
            limits=httpx.Limits(max_connections=None),
        ) as http,
        ThreadPoolExecutor(100) as pool,
    ):
        waiting = [pool.submit(http.get, f"/api/v1/learner/peers?rank={rank}&wait=30") for rank in range(100)]
        while sum(call.running() for call in waiting) < 100:
            time.sleep(0.01)
        assert ann.http.get("/api/v1/jobs").status_code == 200
        assert not any(call.done() for call in waiting), "it was answered while all of them waited"
        api.end_attempt(attempt)
        assert {call.result().status_code for call in waiting} == {410}


def test_phases_go_forward_only_and_messages_become_events(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    _not_due(api, gang.job_id)
    agent.post("phase", phase="DOWNLOADING")
    assert not _is_due(api, gang.job_id), "its start has made the job DOWNLOADING: there is nothing to decide"
    assert _learner(api, gang, 0).phase == "DOWNLOADING"
    agent.post("phase", phase="PROCESSING", message="12 files\0")
    assert _is_due(api, gang.job_id)
    agent.post("phase", phase="DOWNLOADING")
    assert _learner(api, gang, 0).phase == "PROCESSING"
    with api.context.database.transaction() as session:
        query = select(Event.message).where(Event.job_id == gang.job_id, Event.kind == "learner")
        assert session.scalars(query).all() == ["learner 1: 12 files\ufffd"]


def test_a_learner_that_stays_after_a_failure_says_so_once(api: Api, ann: Person) -> None:
    job = ann.submit(HELLO + "keep_on_failure: 30m")["id"]
    attempt = api.attempt(job)
    agent = attempt.agents[0]
    assert agent.start()["keep_seconds"] == 1800
    agent.post("phase", phase="PROCESSING")
    _not_due(api, job)
    kept = {"exit_code": 3, "reason": "exit code 3", "last_lines": ["KeyError: 'x'"], "seconds": 1800}
    for _ in range(2):  # an answer may be lost
        agent.post("phase", phase="PROCESSING", kept=kept)
    assert _is_due(api, job)
    learner = _learner(api, attempt, 0)
    assert (learner.phase, learner.exit_code, learner.last_lines) == ("PROCESSING", 3, "KeyError: 'x'")
    assert learner.kept_until is not None
    assert 1790 < (learner.kept_until - datetime.now(UTC)).total_seconds() <= 1810
    assert [event["message"] for event in ann.http.get(f"/api/v1/jobs/{job}/events").json()["events"]].count(
        f"learner 1: exit code 3; it stays for 30m for a look inside (weft shell {job} --learner 1; weft halt {job} "
        "ends it)"
    ) == 1
    failed_at = learner.exited_at
    agent.post("exit", exit_code=3, reason="exit code 3", last_lines=[])
    assert _learner(api, attempt, 0).exited_at == failed_at


def test_a_retry_comes_before_a_look_inside(api: Api, ann: Person) -> None:
    job = ann.submit(HELLO + "keep_on_failure: 30m\nretries: 1")["id"]
    attempt = api.attempt(job)
    assert attempt.agents[0].start()["keep_seconds"] == 0
    api.end_attempt(attempt)
    with api.context.database.transaction() as session:
        session.get_one(Job, job).failures = 1
    assert api.attempt(job).agents[0].start()["keep_seconds"] == 1800


def test_a_job_has_begun_when_its_program_has(api: Api, ann: Person, gang: Attempted) -> None:
    """Whether or not a worker looks at it while it runs."""

    def started_at() -> str | None:
        found: str | None = ann.http.get(f"/api/v1/jobs/{gang.job_id}").json()["started_at"]
        return found

    first, second = gang.agents
    for agent in (first, second):
        agent.start()
        agent.post("phase", phase="DOWNLOADING")
    assert started_at() is None
    first.post("phase", phase="PROCESSING")
    begun = started_at()
    assert begun is not None
    second.post("phase", phase="PROCESSING")
    assert started_at() == begun


def test_heartbeats_bring_the_stop(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    _not_due(api, gang.job_id)
    assert agent.post("heartbeat", system={"cpu_percent": 3.5}).json() == {
        "stop": False,
        "grace_seconds": None,
        "dump": None,
        "look": None,
        "tunnels": [],
    }
    assert not _is_due(api, gang.job_id), "a heartbeat is no reason to step"
    learner = _learner(api, gang, 0)
    assert learner.heartbeat_at is not None
    assert learner.saved_at is None
    assert agent.post("heartbeat", saved_seconds=100).status_code == 200
    learner = _learner(api, gang, 0)
    assert learner.heartbeat_at is not None
    assert learner.saved_at is not None
    assert (learner.heartbeat_at - learner.saved_at).total_seconds() == 100
    assert agent.post("heartbeat").status_code == 200
    assert _learner(api, gang, 0).saved_at == learner.saved_at, "what is stored stays stored"
    api.set_attempt(gang, stop_requested_at=datetime.now(UTC))
    assert agent.post("heartbeat").json() == {
        "stop": True,
        "grace_seconds": 120,
        "dump": None,
        "look": None,
        "tunnels": [],
    }
    api.set_attempt(gang, grace_seconds=0)
    assert agent.post("heartbeat").json() == {
        "stop": True,
        "grace_seconds": 0,
        "dump": None,
        "look": None,
        "tunnels": [],
    }
    assert code_of(gang.agents[1].post("heartbeat")) == "stale_attempt", "no grant, no heartbeat"


def test_heartbeats_tell_of_progress_and_ask_for_stacks(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    agent.post("heartbeat", idle_seconds=90.5, wrote=False)
    row = _learner(api, gang, 0)
    assert row.idle_since is not None
    assert row.heartbeat_at is not None
    assert (row.heartbeat_at - row.idle_since).total_seconds() == pytest.approx(90.5)
    assert row.wrote is False
    assert (row.still_since, row.pause_seconds) == (None, None), "an older agent"
    agent.post("heartbeat", idle_seconds=0, still_seconds=700.5, pause_seconds=34)
    row = _learner(api, gang, 0)
    assert row.still_since is not None
    assert row.heartbeat_at is not None
    assert (row.heartbeat_at - row.still_since).total_seconds() == pytest.approx(700.5)
    assert row.pause_seconds == 34
    moment = datetime.now(UTC)
    api.set_attempt(gang, stalled_at=moment)
    answer = agent.post("heartbeat", idle_seconds=0, wrote=True).json()
    assert datetime.fromisoformat(answer["dump"]) == moment
    assert answer == agent.post("heartbeat").json() | {"dump": answer["dump"]}, "the same until something moves"
    assert _learner(api, gang, 0).idle_since is None, "an agent that says nothing is unknown"
    assert agent.post("heartbeat", idle_seconds=-1).status_code == 400


def test_looks_are_asked_for_and_kept(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    api.set_attempt(gang, look_at=datetime.now(UTC))
    answer = agent.post("heartbeat").json()
    assert answer["dump"] is None
    report = {"processes": [{"pid": 7, "still": True, "cpu_percent": 41.5, "finished": 12}]}
    assert agent.post("stacks", request="an earlier look", report=report).status_code == 204
    assert _learner(api, gang, 0).stacks is None
    assert agent.post("stacks", request=answer["look"], report=report).status_code == 204
    assert _learner(api, gang, 0).stacks == report
    api.set_attempt(gang, stalled_at=datetime.now(UTC))
    answer = agent.post("heartbeat").json()
    assert (answer["dump"] is None, answer["look"]) == (False, None), "now the stacks are for the log"


def test_the_stacks_of_this_stall_are_kept_until_there_is_a_verdict(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    api.set_attempt(gang, stalled_at=datetime.now(UTC))
    _not_due(api, gang.job_id)
    asked = agent.post("heartbeat").json()["dump"]
    report = {"processes": [{"pid": 7, "command": "a\0b", "threads": []}]}
    assert agent.post("stacks", request="an earlier stall", report=report).status_code == 204
    assert _learner(api, gang, 0).stacks is None
    assert not _is_due(api, gang.job_id)
    assert agent.post("stacks", request=asked, report=report).status_code == 204
    row = _learner(api, gang, 0)
    assert row.stacks == {"processes": [{"pid": 7, "command": "a\ufffdb"}]}
    assert row.stacks_at is not None
    assert _is_due(api, gang.job_id)
    api.set_attempt(gang, verdict="")
    assert agent.post("stacks", request=asked, report={}).status_code == 204
    assert _learner(api, gang, 0).stacks == row.stacks, "too late"
    too_many = {"processes": [{"pid": 7}] * 65}
    assert agent.post("stacks", request=asked, report=too_many).status_code == 400


def test_an_attempt_tells_which_checkpoint_it_began_with(api: Api, ann: Person, gang: Attempted) -> None:
    origin = {"generation": "000001-000004", "job": gang.job_id, "attempt": 1, "at": 1.5e9, "files": 2, "size": 7}
    for agent, files in zip(gang.agents, (2, 5), strict=True):
        agent.start()
        answer = agent.post("phase", phase="PROCESSING", message="restored", checkpoint=origin | {"files": files})
        assert answer.status_code == 204
    shown = ann.http.get(f"/api/v1/jobs/{gang.job_id}").json()
    assert shown["attempts"][0]["checkpoint"] == origin, "rank 0's"
    events = ann.http.get(f"/api/v1/jobs/{gang.job_id}/events").json()["events"]
    assert [event["data"]["checkpoint"]["files"] for event in events if event["kind"] == "learner"] == [2, 5]


def test_rank_0_stores_last(api: Api, gang: Attempted) -> None:
    first, second = gang.agents
    first.start(), second.start()
    wait, go = {"granted": False, "wait": True}, {"granted": True, "wait": False}
    assert _learner(api, gang, 0).active_at is None
    assert first.post("storing", exit_code=0).json() == wait
    ended = _learner(api, gang, 0).active_at
    assert ended is not None, "its program has ended only now"
    assert second.post("storing", exit_code=0).json() == go
    assert first.post("storing", exit_code=0).json() == wait, "rank 1 may still be storing"
    assert _learner(api, gang, 0).active_at == ended
    assert code_of(first.post("objects", space="results", op="put", keys=["a"])) == "no_grant"
    assert second.post("objects", space="results", op="put", keys=["a"]).status_code == 200
    second.post("exit", exit_code=0, reason="", last_lines=[])
    assert first.post("storing", exit_code=0).json() == go
    assert code_of(second.post("storing", exit_code=0)) == "stale_attempt", "it has exited"


def test_partial_results_are_stored_at_once(api: Api, ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    first.start(), second.start()
    assert first.post("storing", exit_code=0).json()["granted"] is False
    assert second.post("storing", exit_code=3).json()["granted"] is True
    assert first.post("storing", exit_code=0).json()["granted"] is True, "a peer has failed"
    other = api.attempt(ann.submit(set={"learners": "2"})["id"])
    other.agents[0].start()
    api.set_attempt(other, stop_requested_at=datetime.now(UTC))
    assert other.agents[0].post("storing", exit_code=0).json()["granted"] is True


def test_a_large_object_in_parts(api: Api, ann: Person, gang: Attempted) -> None:
    prefix = f"jobs/{ann.project_id}/{gang.job_id}"
    agent = gang.agents[0]
    agent.start()
    call = {"space": "checkpoints", "keys": ["big"]}

    def ask(op: str, **more: Any) -> Any:
        answer = agent.post("objects", op=op, **call, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    upload = ask("begin")["upload"]
    parts = [b"1" * (5 << 20), b"2"]
    urls = ask("parts", upload=upload, numbers=[1, 2])["urls"]
    etags = [httpx.put(urls[str(n)], content=part, timeout=300).headers["etag"] for n, part in enumerate(parts, 1)]
    assert api.context.objects.head(f"{prefix}/checkpoints/big") is None
    for _ in range(2):  # the first answer may be lost
        ask("complete", upload=upload, etags=etags)
    assert api.context.objects.get(f"{prefix}/checkpoints/big") == b"".join(parts)
    other = ask("begin")["upload"]
    for _ in range(2):
        ask("abort", upload=other)
    call["keys"] = ["never"]
    assert agent.post("objects", op="complete", upload=other, etags=etags, **call).status_code == 400
    assert agent.post("objects", op="parts", numbers=[1], **call).status_code == 400
    assert agent.post("objects", op="begin", space="checkpoints", keys=["a", "b"]).status_code == 400
    assert agent.post("objects", op="begin", space="results", keys=["a"]).status_code == 409, "no storing grant yet"


def test_objects_are_under_the_jobs_own_prefixes(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[1]
    agent.start()
    agent.post("storing", exit_code=1)
    keys = ["model.pt", "logs/tb/x y.txt"]
    urls = agent.post("objects", space="results", op="put", keys=keys).json()["urls"]
    for key in keys:
        assert httpx.put(urls[key], content=key.encode(), timeout=300).status_code == 200
    prefix = f"jobs/{ann.project_id}/{gang.job_id}"
    assert api.context.objects.get(f"{prefix}/results/model.pt") == b"model.pt"
    listed = agent.post("objects", space="results", op="list").json()["objects"]
    assert listed == [{"key": "logs/tb/x y.txt", "size": 15}, {"key": "model.pt", "size": 8}]
    assert len(agent.post("objects", space="results", op="list", keys=["logs/"]).json()["objects"]) == 1
    url = agent.post("objects", space="results", op="get", keys=keys[:1]).json()["urls"]["model.pt"]
    assert httpx.get(url, timeout=300).content == b"model.pt"
    assert agent.post("objects", space="results", op="delete", keys=keys[:1]).status_code == 200
    assert api.context.objects.head(f"{prefix}/results/model.pt") is None
    url = agent.post("objects", space="exit", op="put", keys=["exit.json"]).json()["urls"]["exit.json"]
    assert httpx.put(url, content=b"{}", timeout=300).status_code == 200
    assert api.context.objects.get(f"{prefix}/attempts/1/learner-1/exit.json") == b"{}"


@pytest.mark.parametrize(
    "key", ["../x", "a/../../x", "/x", "x/", "", "a//b", "./a", "a\\b", "a\0b", "a\nb", "..", "\ud800"]
)
def test_hostile_keys(gang: Attempted, key: str) -> None:
    agent = gang.agents[0]
    agent.start()
    body = {"rank": 0, "instance": agent.instance, "space": "checkpoints", "op": "put", "keys": [key]}
    answer = agent.http.post("/api/v1/learner/objects", content=json.dumps(body))
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


def test_the_exit_space_holds_one_object(gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    for op, keys in (("put", ["other.json"]), ("put", []), ("list", []), ("delete", ["exit.json"])):
        assert agent.post("objects", space="exit", op=op, keys=keys).status_code == 400


def test_files_in_the_jobs_folder_are_told_in_events_and_in_the_summary(ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    spec = agent.start()
    assert spec["leftovers"] == {"results": [], "keep": True, "bytes": 1 << 30}
    group = {"path": "runs/\0", "files": 2, "bytes": 2048}
    kept = {"files": 3, "bytes": 3 << 20, "listed": [group]}
    lost = {"files": 1, "bytes": 4 << 30, "listed": [group | {"path": "big.pt"}], "reason": "it is too large"}
    nothing = {"files": 0, "bytes": 0, "listed": []}
    told = {"place": "workdir/", "line": "results: [runs/**]", "named": nothing, "kept": kept, "lost": [lost]}
    assert agent.post("exit", exit_code=0, leftovers=told | {"lost": [lost] * 50}).status_code == 400
    assert agent.post("exit", exit_code=0, leftovers=told | {"unmatched": ["*.ckpt"]}).status_code == 204
    path = f"/api/v1/jobs/{gang.job_id}"
    events = [(event["kind"], event["message"]) for event in ann.http.get(f"{path}/events").json()["events"]]
    line = "; to store them in their own places, add to the manifest: results: [runs/**]"
    assert events[-3:] == [
        (
            "learner",
            "learner 1: kept 3 files (3 MiB: runs/\ufffd 2 KiB, and 1 more file) that the program left in its "
            f"folder, below workdir/{line}",
        ),
        ("warning", f"learner 1: not kept: 1 file (4 GiB: big.pt 2 KiB), as it is too large{line}"),
        ("warning", "learner 1: no file matches these patterns of results: *.ckpt"),
    ]
    [attempt] = ann.http.get(path).json()["attempts"]
    shown = attempt["learners"][0]["leftovers"]
    assert (shown["kept"]["files"], shown["lost"][0]["reason"]) == (3, "it is too large")
    assert attempt["learners"][1]["leftovers"] is None


def test_exits_are_reported_once(api: Api, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.start()
    _not_due(api, gang.job_id)
    assert agent.post("exit", exit_code=3, reason="exit code 3", last_lines=["a", "b\0"]).status_code == 204
    assert _is_due(api, gang.job_id)
    assert agent.post("exit", exit_code=0, reason="other", last_lines=[]).status_code == 204
    learner = _learner(api, gang, 0)
    assert (learner.phase, learner.exit_code, learner.exit_reason) == ("EXITED", 3, "exit code 3")
    assert learner.last_lines == "a\nb\ufffd"
    assert code_of(agent.post("start", hostname="x")) == "stale_attempt"


def test_heartbeats_of_a_gang_take_one_statement_and_each_gets_its_own_answer(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = api.attempt(ann.submit(set={"learners": "3"})["id"])
    for agent in attempt.agents:
        agent.start()
    told = {"system": {"cpu_percent": 90.0}, "wrote": True, "idle_seconds": 5}
    bodies = [
        *({"rank": agent.rank, "instance": agent.instance, **told} for agent in attempt.agents),
        {"rank": 1, "instance": "another-agent"},
        {"rank": 2},
    ]
    single: list[int] = []
    alone = service.heartbeat

    def counted(context: Context, token: AttemptToken, call: HeartbeatCall) -> HeartbeatAnswer:
        single.append(call.rank)
        return alone(context, token, call)

    monkeypatch.setattr(service, "heartbeat", counted)
    token = AttemptToken(hash_token(attempt.token))
    found = heartbeats.take_in(api.context, token, [json.dumps(body).encode() for body in bodies])
    assert found[:3:2] == [HeartbeatAnswer(stop=False, grace_seconds=None, dump=None)] * 2
    assert [getattr(outcome, "kind", type(outcome)) for outcome in found[3:]] == [STALE_ATTEMPT, RequestValidationError]
    with api.context.database.transaction() as session:
        query = select(Learner.wrote, Learner.active_at, Learner.idle_since).where(Learner.attempt_id == attempt.id)
        rows = session.execute(query.order_by(Learner.rank)).all()
    assert [(row.wrote, row.active_at > row.idle_since) for row in (rows[0], rows[2])] == [(True, True)] * 2
    assert set(single) == {1}, "the two calls of the same rank, of which one has no grant"


def test_a_heartbeat_whose_row_is_held_waits_without_holding_up_the_others(api: Api, ann: Person) -> None:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    token = AttemptToken(hash_token(attempt.token))
    calls = [HeartbeatCall(rank=agent.rank, instance=agent.instance) for agent in attempt.agents]
    with api.context.database.transaction() as session:
        session.scalars(select(Learner).where(Learner.attempt_id == attempt.id, Learner.rank == 0).with_for_update())
        with api.context.database.transaction() as beside:
            noted = heartbeats.note_beats(api.context, beside, token, calls)
        assert [rank for rank, _ in noted] == [1]


def _admitted(api: Api, ann: Person, learners: int = 1, **columns: Any) -> Attempted:
    """The job is PENDING and due in a while, as after the step that launched it; ``columns``: of the job's row."""
    attempt = api.attempt(ann.submit(set={"learners": str(learners)})["id"])
    with api.context.database.transaction() as session:
        job = session.get_one(Job, attempt.job_id)
        job.state = "PENDING"
        for name, value in columns.items():
            setattr(job, name, value)
    _not_due(api, attempt.job_id)
    return attempt


def _state(api: Api, job_id: str) -> tuple[str, bool]:
    with api.context.database.transaction() as session:
        return session.get_one(Job, job_id).state, _is_due(api, job_id)


def test_a_report_advances_its_job(api: Api, ann: Person) -> None:
    attempt = _admitted(api, ann)
    [agent] = attempt.agents
    agent.start()
    assert _state(api, attempt.job_id) == ("DOWNLOADING", False), "no worker has to look"
    agent.post("phase", phase="PROCESSING")
    assert _state(api, attempt.job_id) == ("DOWNLOADING", True), "a worker computes its limits of time"
    _not_due(api, attempt.job_id)
    agent.post("storing", exit_code=0)
    assert _state(api, attempt.job_id) == ("STORING", False)
    agent.post("exit", exit_code=0, reason="", last_lines=[])
    assert _state(api, attempt.job_id) == ("STORING", True)
    with api.context.database.transaction() as session:
        of_the_job = select(Event).where(Event.job_id == attempt.job_id, Event.kind == "state")
        events = session.scalars(of_the_job.order_by(Event.id))
        told = [(event.state, event.message, event.data["from"]) for event in events]
    assert told == [
        ("DOWNLOADING", "bringing code and data", "PENDING"),
        ("STORING", "storing results", "DOWNLOADING"),
    ]


def test_a_gang_advances_with_its_last_learner(api: Api, ann: Person) -> None:
    attempt = _admitted(api, ann, learners=2)
    for agent, state in zip(attempt.agents, [("DOWNLOADING", False), ("DOWNLOADING", True)], strict=True):
        agent.start()
        assert _state(api, attempt.job_id) == state
    for agent, state in zip(attempt.agents, [("DOWNLOADING", True), ("STORING", False)], strict=True):
        _not_due(api, attempt.job_id)
        agent.post("storing", exit_code=0)
        assert _state(api, attempt.job_id) == state


@pytest.mark.parametrize(
    "columns",
    [{"lease_token": "a worker's"}, {"condition": "node a does not answer"}, {"desired": "HALTED"}],
    ids=["a step is under way", "a condition may be over", "it is to halt"],
)
def test_a_report_leaves_the_rest_to_a_worker(api: Api, ann: Person, columns: dict[str, Any]) -> None:
    attempt = _admitted(api, ann, **columns)
    attempt.agents[0].start()
    assert _state(api, attempt.job_id) == ("PENDING", True)
