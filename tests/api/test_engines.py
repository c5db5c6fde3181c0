"""Engines with their resources, their use and their waiting jobs; other projects' jobs appear only as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update
from tests.api.conftest import Api, Person, code_of

from weft_core.engine_settings import KubernetesSettings, LocalSettings
from weft_core.settings import Settings
from weft_core.store.models import Attempt, EngineStatus, Job, Learner, NodeBlame, User

GIB = 1 << 30
NODES = [
    {"name": "n1", "cpus": 8, "gpus": 2, "memory": 64 * GIB, "gpu_type": "a100", "busy": {"cpus": 1.5, "memory": GIB}},
    {"name": "n2", "cpus": 8, "gpus": 2, "memory": 64 * GIB, "taints": ["spot"], "extra": {"rdma": 1}},
    {"name": "n3", "cpus": 8, "gpus": 2, "memory": 64 * GIB, "not_ready": True, "busy": {"cpus": 8}},
    {"name": "k8s-0-0", "cpus": 96, "gpus": 8, "memory": 512 * GIB, "potential": True},
]


@pytest.fixture(scope="module")
def api(api_settings: Settings) -> Iterator[Api]:
    engines = {"local": LocalSettings(), "k8s": KubernetesSettings(), "new": KubernetesSettings()}
    running = Api(api_settings.model_copy(update={"engines": engines}))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def engines(api: Api) -> Iterator[None]:
    now = datetime.now(UTC)
    with api.context.database.transaction() as session:
        session.execute(delete(Job))
        session.execute(delete(EngineStatus))
        session.execute(delete(NodeBlame))
        session.add(EngineStatus(name="gone", type="ray", seen_at=now, capacity={"nodes": []}))  # left the settings
        session.add(
            EngineStatus(
                name="k8s", type="kubernetes", seen_at=now, capacity={"nodes": NODES, "queue": "Kueue's queue a"}
            )
        )
        session.add(
            EngineStatus(
                name="local", type="local", seen_at=now - timedelta(minutes=5), capacity={"nodes": NODES[:1]},
                unreachable_since=datetime(2026, 1, 31, 8, 15, tzinfo=UTC), error="connection refused",
            )
        )  # fmt: skip
    yield
    with api.context.database.transaction() as session:  # which other files' tests use, too
        session.execute(delete(EngineStatus))


def view(person: Person, name: str = "k8s") -> dict[str, Any]:
    answer = person.http.get(f"/api/v1/engines/{name}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def run(api: Api, person: Person, *nodes: str | None, cpus: float = 1, meant: str = "n1") -> str:
    """A job whose learners run on these nodes, as far as that is known."""
    manifest = f"name: run\nengine: k8s\nlearners: {len(nodes)}\nframework: {{name: pytorch, command: x}}\n"
    job = person.submit(manifest)["id"]
    attempt = api.attempt(job)
    each = {"cpus": cpus, "gpus": 1, "memory": 4 * GIB, "learners": len(nodes), "nodes": [meant] * len(nodes)}
    with api.context.database.transaction() as session:
        session.execute(update(Attempt).where(Attempt.id == attempt.id).values(resources=each))
        for rank, node in enumerate(nodes):
            session.execute(
                update(Learner).where(Learner.attempt_id == attempt.id, Learner.rank == rank).values(node=node)
            )
    api.set_state(job, "PENDING", "starting")
    api.set_state(job, "PROCESSING", "running")
    return str(job)


def queue(
    api: Api, person: Person, name: str, priority: int = 50, reason: str = "waiting for 1 GPU: 0 of 4 free"
) -> str:
    manifest = f"name: {name}\nengine: k8s\npriority: {priority}\nframework: {{name: pytorch, command: x}}\n"
    job = str(person.submit(manifest)["id"])
    with api.context.database.transaction() as session:
        session.execute(update(Job).where(Job.id == job).values(reason=reason))
    return job


def test_the_engines_of_the_settings_and_no_others(api: Api, ann: Person) -> None:
    listed = ann.http.get("/api/v1/engines").json()["engines"]
    assert [(engine["name"], engine["type"], engine["default"]) for engine in listed] == [
        ("local", "local", True),
        ("k8s", "kubernetes", False),
        ("new", "kubernetes", False),
    ]
    assert ann.http.get("/api/v1/engines/gone").status_code == 404
    problem = ann.http.get("/api/v1/engines/%00").json()
    assert (problem["code"], problem["detail"]) == ("not_found", "no engine '\\x00'; there are: local, k8s, new")


def test_how_each_is(api: Api, ann: Person) -> None:
    local, k8s, new = ann.http.get("/api/v1/engines").json()["engines"]
    assert (k8s["health"], k8s["condition"], k8s["error"]) == ("up", None, None)
    assert (local["health"], local["condition"]) == (
        "unreachable",
        "no answer since 2026-01-31 08:15:00 UTC: connection refused",
    )
    assert local["capacity"]["cpus"] == 8, "the last that is known"
    assert (new["health"], new["condition"]) == ("unseen", "no worker has looked at it yet")
    assert (new["capacity"], new["busy"], new["free"], new["used"]["cpus"]) == (None, None, None, 0)
    with api.context.database.transaction() as session:
        row = session.get_one(EngineStatus, "local")
        row.unreachable_since, row.error = None, None
        row.seen_at = datetime(2026, 1, 31, 8, 15, tzinfo=UTC)
    engine = view(ann, "local")
    assert (engine["health"], engine["condition"]) == (
        "unseen",
        "no worker has looked at it since 2026-01-31 08:15:00 UTC",
    )


def test_what_it_has_and_who_uses_it(api: Api, ann: Person) -> None:
    bob = api.person()
    run(api, ann, "n2", None, cpus=2)  # where the second one went is not known yet: it counts where admission placed it
    run(api, bob, "n3")
    engine = view(ann)
    assert engine["capacity"] == {"cpus": 16, "gpus": 4, "memory": 128 * GIB}, "of the two nodes that take learners"
    assert engine["used"] == {"cpus": 5, "gpus": 3, "memory": 12 * GIB}, "everybody's"
    assert engine["busy"] == {"cpus": 1.5, "gpus": 0, "memory": GIB}
    assert engine["free"] == {"cpus": 10.5, "gpus": 2, "memory": 119 * GIB}
    assert (engine["running"], engine["queued"], engine["queue"]) == (2, 0, "Kueue's queue a")
    assert engine["node_counts"] == {"ready": 2, "not_ready": 1, "potential": 1}
    nodes = {node.pop("name"): node for node in engine["nodes"]}
    assert nodes["n1"] == {
        "state": "ready",
        "gpu_type": "a100",
        "capacity": {"cpus": 8, "gpus": 2, "memory": 64 * GIB},
        "used": {"cpus": 2, "gpus": 1, "memory": 4 * GIB},
        "busy": {"cpus": 1.5, "gpus": 0, "memory": GIB},
        "extra": {},
        "taints": [],
        "blames": 0,
        "excluded": False,
    }
    assert (nodes["n2"]["used"]["cpus"], nodes["n2"]["taints"], nodes["n2"]["extra"]) == (2, ["spot"], {"rdma": 1})
    assert (nodes["n3"]["state"], nodes["n3"]["used"]["gpus"]) == ("not ready", 1)
    assert nodes["k8s-0-0"]["state"] == "potential"
    listed = {engine["name"]: engine for engine in ann.http.get("/api/v1/engines").json()["engines"]}
    assert listed["k8s"] == {key: value for key, value in engine.items() if key in listed["k8s"]}
    assert "nodes" not in listed["k8s"], "they may be many"


def test_what_waits_names_the_projects_own_jobs_only(api: Api, ann: Person) -> None:
    bob = api.person()
    mine = queue(api, ann, "mine")
    secret = queue(api, bob, "bobs-secret-project", reason="secret reason")
    urgent = queue(api, ann, "urgent", priority=90, reason="waiting for 4 GPUs: 1 of 4 free")
    starting = queue(api, bob, "bobs-starting")
    api.set_state(starting, "PENDING", "learner 1: image pull failed")
    seen = view(ann)
    assert [(job["id"], job["place"], job["reason"]) for job in seen["waiting"]] == [
        (urgent, 1, "waiting for 4 GPUs: 1 of 4 free"),
        (mine, 2, "waiting for 1 GPU: 0 of 4 free"),
    ]
    assert (seen["queued"], seen["waiting_of_others"]) == (3, 1)
    assert "secret" not in str(seen)
    assert starting not in str(seen)
    by_bob = view(bob)
    assert [(job["name"], job["place"], job["state"]) for job in by_bob["waiting"]] == [
        ("bobs-starting", None, "PENDING"),
        ("bobs-secret-project", 3, "QUEUED"),
    ]
    assert by_bob["waiting"][0]["reason"] == "learner 1: image pull failed"
    assert by_bob["waiting_of_others"] == 2
    assert mine not in str(by_bob)
    assert secret in str(by_bob)


def test_an_unsigned_caller_learns_nothing(api: Api) -> None:
    assert api.client().get("/api/v1/engines/k8s").status_code == 401


def test_show_names_where_each_learner_runs(api: Api, ann: Person) -> None:
    job = run(api, ann, "n2", None)
    (attempt,) = ann.http.get(f"/api/v1/jobs/{job}").json()["attempts"]
    assert [learner["node"] for learner in attempt["learners"]] == ["n2", None]


def test_which_engines_have_an_image(api: Api, ann: Person) -> None:
    def engines(reference: str) -> dict[str, str]:
        images = ann.http.get("/api/v1/catalogue").json()["images"]
        [found] = [image["engines"] for image in images if image["reference"] == reference]
        return dict(found)

    assert engines("python:3.11") == {"local": "unknown", "k8s": "on demand", "new": "on demand"}
    with api.context.database.transaction() as session:
        session.get_one(EngineStatus, "local").capacity = {"nodes": [], "images": ["python:3.11"]}
    assert engines("python:3.11")["local"] == "ready"
    assert engines("pytorch:2.13.0")["local"] == "on demand"


def test_the_room_for_learners_is_counted_node_by_node(api: Api) -> None:
    person = api.person()
    run(api, person, "n1", cpus=2)

    def room(name: str = "k8s", **size: Any) -> tuple[int | None, ...]:
        answer = person.http.get(f"/api/v1/engines/{name}/room", params=size)
        assert answer.status_code == 200, answer.text
        return tuple(answer.json()[key] for key in ("now", "empty", "potential", "tainted"))

    # n1 has 4.5 of 8 CPUs and 1 of 2 GPUs free, n2 is tainted, n3 is not ready, and the cluster may add k8s-0-0.
    assert room(cpus=4) == (1, 4, 24, 2)
    assert room(cpus=1, gpus=2) == (0, 2, 4, 1)
    assert room(gpus=1, gpu_type="a100") == (1, 4, 8, 2), "the type of the other nodes is unknown"
    assert room(gpus=1, gpu_type="v100") == (0, 2, 8, 2)
    assert room(cpus=1, memory=100 * GIB) == (0, 0, 5, 0)
    assert room("new", cpus=1) == (None, None, None, None), "no worker has observed it"
    assert person.http.get("/api/v1/engines/nowhere/room").status_code == 404


def test_usage_counts_what_attempts_held(api: Api, ann: Person, bob: Person, root: Person) -> None:
    now = datetime.now(UTC)
    spans: list[tuple[Person, int, timedelta, timedelta | None]] = [
        (ann, 2, timedelta(hours=6), timedelta(hours=2)),
        (ann, 1, timedelta(hours=30), timedelta(hours=23)),
    ]
    spans.append((bob, 4, timedelta(hours=1), None))
    spans.append((ann, 8, timedelta(hours=60), timedelta(hours=50)))  # before the time that is asked for
    for person, gpus, begun, ended in spans:
        attempt = api.attempt(person.submit()["id"])
        held = {"cpus": 1.5, "gpus": gpus, "memory": 0, "learners": 2}
        at = {"created_at": now - begun, "ended_at": None if ended is None else now - ended, "engine": "usage-test"}
        api.set_attempt(attempt, resources=held, **at)
    answer = ann.http.get("/api/v1/usage?hours=24")
    assert answer.status_code == 200, answer.text
    usage = answer.json()
    (row,) = usage["people"]
    assert (row["project"], row["user"], row["attempts"]) == (ann.project, ann.name, 2)
    assert row["gpu_hours"] == pytest.approx(2 * 2 * 4 + 2 * 1, abs=0.1)  # the second one: one hour of the 24
    assert row["cpu_hours"] == pytest.approx(3 * 4 + 3, abs=0.1)
    (points,) = [engine["points"] for engine in usage["engines"] if engine["name"] == "usage-test"]
    assert len(points) == 96, "a quarter of an hour each"
    in_use = [point["gpus"] for point in points]
    assert (in_use[1], in_use[40], in_use[80], in_use[95]) == (2, 0, 4, 8)
    assert sum(in_use) / 4 == pytest.approx(2 + 16 + 8, abs=0.1)
    text = ann.http.get("/api/v1/usage/export?hours=24").text.splitlines()
    assert text[0] == "project,user,since,until,attempts,cpu_hours,gpu_hours"
    assert [line.split(",")[:2] for line in text[1:]] == [[ann.project, ann.name]]
    assert ann.http.get("/api/v1/usage?hours=24&everybody=true").status_code == 403
    everybody = root.http.get("/api/v1/usage?hours=24&everybody=true").json()["people"]
    assert {ann.name, bob.name} <= {person["user"] for person in everybody}
    span = {"since": (now - timedelta(hours=7)).isoformat(), "until": (now - timedelta(hours=3)).isoformat()}
    usage = ann.http.get("/api/v1/usage", params=span).json()
    assert [(row["attempts"], row["gpu_hours"]) for row in usage["people"]] == [(1, pytest.approx(2 * 2 * 3))]
    (points,) = [engine["points"] for engine in usage["engines"] if engine["name"] == "usage-test"]
    assert sum(point["gpus"] for point in points) / 24 == pytest.approx(2 * 2 * 3, abs=0.1)
    assert len(ann.http.get("/api/v1/usage/export", params=span).text.splitlines()) == 2
    for wrong in ({"since": "1h", "until": "2h"}, {"since": "93d"}, {"since": "soon"}):
        refused = ann.http.get("/api/v1/usage", params=wrong)
        assert (refused.status_code, code_of(refused)) == (400, "invalid_request")


def test_an_engine_names_the_projects_own_attempts_and_the_idle_ones(api: Api, ann: Person, bob: Person) -> None:
    attempt, theirs = api.attempt(ann.submit()["id"]), api.attempt(bob.submit()["id"])
    quiet = datetime.now(UTC) - timedelta(minutes=20)
    with api.context.database.transaction() as session:
        for its in (attempt, theirs):
            session.execute(update(Learner).where(Learner.attempt_id == its.id).values(node="gpu-1", idle_since=quiet))
    (shown,) = ann.http.get("/api/v1/engines/local").json()["attempts"]
    assert (shown["job"], shown["user"], shown["nodes"]) == (attempt.job_id, ann.name, ["gpu-1"])
    assert datetime.fromisoformat(shown["idle_since"]) == quiet


def blame(api: Api, node: str, jobs: int) -> None:
    with api.context.database.transaction() as session:
        for n in range(jobs):
            session.add(
                NodeBlame(
                    engine="k8s",
                    node=node,
                    job=f"job-{n}",
                    project=f"prj-{n % 2}",
                    attempt=1,
                    reason="learner 2 was lost with its node",
                )
            )


def test_a_node_that_jobs_blame_is_excluded_until_an_administrator_forgives_it(api: Api, ann: Person) -> None:
    run(api, ann, "n2", None)
    blame(api, "n1", 3)
    blame(api, "n2", 1)
    nodes = {node["name"]: (node["blames"], node["excluded"]) for node in view(ann)["nodes"]}
    assert nodes | {"n1": (3, True), "n2": (1, False)} == nodes
    assert view(ann)["node_counts"]["ready"] == 2
    ledger, path = "/api/v1/engines/k8s/blames", "/api/v1/engines/k8s/nodes/n1/forgive"
    assert (code_of(ann.http.get(ledger)), code_of(ann.http.post(path))) == ("forbidden", "forbidden")
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(is_admin=True))
    rows = ann.http.get(ledger).json()["blames"]
    assert [row["node"] for row in rows] == ["n2", "n1", "n1", "n1"]
    assert rows[1]["reason"] == "learner 2 was lost with its node"
    assert ann.http.post(path).json() == {"forgiven": 3}
    assert code_of(ann.http.post(path)) == "not_found"
    assert [(node["blames"], node["excluded"]) for node in view(ann)["nodes"] if node["name"] == "n1"] == [(0, False)]
    assert ann.http.get(ledger).json()["blames"][1]["forgiven_at"]
