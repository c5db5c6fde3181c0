"""No GET of the API reads a table that grows from its beginning to its end: Postgres's own plans say so.

The planner is made to believe in a million rows. Each statement of each request is explained where it is executed, so
with the role, the policies and the parameters that it has there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import event, func, select
from tests.api.conftest import Api, Person
from tests.many_jobs import fill
from tests.servers import Servers

from weft_core.settings import Settings
from weft_core.store.models import Job

GROWING = [
    "attempts",
    "audit",
    "events",
    "job_labels",
    "job_metrics",
    "job_texts",
    "jobs",
    "learners",
    "log_cursors",
    "mlflow_runs",
]
_BELIEVED = 1_000_000
_LISTS = [
    "",
    "state=PROCESSING",
    "state=QUEUED&state=PENDING&sort=name",
    "state=FAILED&sort=created_at",
    "label=run%3D3",
    "label=team%3Dvision&label=run%3D3",
    "label=team%3Dvision&state=FAILED",
    "q=nothing+like+it",
    "q=zebra&state=FAILED",
    "q=z&sort=-name",
    "q=zebra&label=team%3Dtext&sort=state",
    "q=zebra&sort=metric:val/loss",
    "user=usr-rare",
    "user=usr-rare&sort=name",
    "engine=cluster",
    "since=1h",
    "metric=val/loss%3C0.00001",
    "param=lr",
    "param=lr%3D0.1",
    "param=lr%3D0.7&sort=name",
    "param=lr%3D0.7&q=zebra",
    "pinned=true",
    "pinned=true&label=team%3Dvision",
    "sort=created_at",
    "sort=name",
    "sort=-name",
    "sort=state",
    "sort=duration",
    "sort=-duration",
    "sort=-duration&state=FAILED",
    "sort=-duration&q=zebra",
    "sort=-state",
    "sort=metric:val/loss",
    "sort=-metric:val/accuracy:max",
]
_AUDIT = ["", "user=usr-rare", "action=jobs.halt", "action=jobs", "outcome=refused", "object=job:x", "since=1h"]

_NARROW = {"/api/v1/usage": "?hours=1", "/api/v1/usage/export": "?hours=1"}
"""Reads of a span of time. By default theirs has all jobs of these tests, which are of one day."""


class Plans:
    """The plans of all that a database executes, as long as it is asked to look."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, Any]]] = []

    def explain(self, _connection: Any, cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if statement.lstrip()[:6].upper() in ("SELECT", "WITH R", "WITH F") and " FROM " in statement.replace(
            "\n", " "
        ):
            with cursor.connection.cursor() as own:
                own.execute("explain (format json) " + statement, parameters)
                [[[plan]]] = [own.fetchone()]
            self.found.append((statement, plan["Plan"]))

    def slow(self) -> Iterator[str]:
        for statement, plan in self.found:
            for node in _nodes(plan):
                table, kind = node.get("Relation Name"), node["Node Type"]
                # Walking along an index is right if the sought rows are everywhere, or if it holds nothing else.
                sparse = node["Plan Rows"] < _BELIEVED / 100 and node.get("Index Name") != "ix_audit_refused"
                walked = kind.startswith("Index") and "Index Cond" not in node and "Filter" in node and sparse
                if table in GROWING and (kind == "Seq Scan" or walked):
                    yield f"{kind} of {table} in: {statement}"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


@pytest.fixture(scope="module")
def api(servers: Servers, api_settings: Settings) -> Iterator[Api]:
    """With a database of its own, as these tests change it in ways that would disturb others."""
    with servers.database_url() as url:
        running = Api(api_settings.model_copy(update={"database_url": SecretStr(url)}))
        yield running
        running.stop()
        running.context.database.close()


@pytest.fixture(scope="module")
def big(api: Api) -> Person:
    """An administrator who owns a project that seems to have a million jobs."""
    person = api.person()
    url = api.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update users set is_admin = true where id = %s", [person.user_id])
        fill(connection, person.project_id, 2000, 2)
        for table in GROWING:
            connection.execute(f"alter table {table} set (autovacuum_enabled = off)")
        believed = "update pg_class set reltuples = %s where relname = any(%s)"
        assert connection.execute(believed, [_BELIEVED, GROWING]).rowcount == len(GROWING)
    return person


@pytest.fixture
def plans(api: Api) -> Iterator[Plans]:
    seen = Plans()
    engine = api.context.database.engine
    event.listen(engine, "before_cursor_execute", seen.explain)
    yield seen
    event.remove(engine, "before_cursor_execute", seen.explain)


def _paths(api: Api, job_id: str) -> list[str]:
    """All routes that read, with the job's id where they are about a job."""
    operations = [path for path, found in api.openapi["paths"].items() if "get" in found]
    known = {"job_id": job_id, "name": "none", "engine": "local", "project": "none"}
    paths = [re.sub(r"{(\w+)(:path)?}", lambda found: known.get(found[1], "1"), path) for path in operations]
    return sorted(path + _NARROW.get(path, "") for path in paths if not path.startswith("/api/v1/learner"))


def test_no_read_goes_through_a_table_that_grows(api: Api, big: Person, plans: Plans) -> None:
    job_id = big.http.get("/api/v1/jobs?limit=1").json()["jobs"][0]["id"]
    asked = [f"/api/v1/jobs?{query}" for query in _LISTS]
    asked += [f"/api/v1/audit?{query}" for query in _AUDIT] + ["/v1/models?version=2017-02-13"]
    asked += _paths(api, job_id)
    slow, unknown = [], []
    for path in asked:
        plans.found.clear()
        with big.http.stream("GET", path) as answer:  # some never end
            if answer.status_code >= 500:
                unknown.append(f"{path}: {answer.status_code}")
        slow += [f"GET {path}: {found}" for found in plans.slow()]
    assert not unknown, unknown
    assert not slow, "\n\n".join(slow)


def test_no_further_page_does_either(big: Person, plans: Plans) -> None:
    for query in _LISTS:
        first = big.http.get(f"/api/v1/jobs?{query}&limit=2").json()
        if first["next_cursor"]:
            plans.found.clear()
            big.http.get(f"/api/v1/jobs?{query}&limit=2&cursor={first['next_cursor']}").raise_for_status()
            slow = list(plans.slow())
            assert not slow, f"GET /jobs?{query}, the next page: " + "\n\n".join(slow)


@pytest.mark.parametrize("query", _LISTS)
def test_pages_are_parts_of_the_list(big: Person, query: str) -> None:
    def page(limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        behind = f"&cursor={cursor}" if cursor else ""
        answer = big.http.get(f"/api/v1/jobs?{query}&limit={limit}{behind}")
        answer.raise_for_status()
        return [job["id"] for job in answer.json()["jobs"]], answer.json()["next_cursor"]

    whole, _ = page(33, None)
    parts, cursor = page(8, None)
    while cursor and len(parts) < len(whole):
        more, cursor = page(8, cursor)
        parts += more
    assert parts[: len(whole)] == whole
    assert len(set(parts)) == len(parts)


def test_searches_of_mlflow_do_not_either(big: Person, plans: Plans) -> None:
    name = big.http.get("/api/v1/jobs?limit=1").json()["jobs"][0]["name"]
    found = big.http.get("/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": name})
    its = found.json()["experiment"]["experiment_id"]
    body = {"experiment_ids": [its], "max_results": 5}
    assert big.http.post("/api/2.0/mlflow/runs/search", json=body).json()["runs"]
    assert not list(plans.slow()), "\n\n".join(plans.slow())


def test_these_tests_see_a_scan(api: Api, big: Person, plans: Plans) -> None:
    with api.context.database.transaction() as session:
        session.scalar(select(func.count()).select_from(Job).where(Job.reason == "none has it"))
    assert [found.split(" in:")[0] for found in plans.slow()] == ["Seq Scan of jobs"]
