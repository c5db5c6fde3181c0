"""``weft users`` and ``weft projects`` against the API itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.api.conftest import Api, api, api_settings

from weft.client import Client
from weft_core.store.models import NodeBlame, User

__all__ = ["api", "api_settings"]  # fixtures

Weft = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def root(api: Api, tmp_path: Path) -> Weft:
    """The command, as an administrator runs it."""
    person = api.person()
    with api.context.database.transaction() as session:
        session.execute(update(User).values(is_admin=User.id == person.user_id))

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"WEFT_URL": api.url, "WEFT_TOKEN": person.token, "PATH": "/usr/bin:/bin", "COLUMNS": "150"}
        environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return subprocess.run(
            [sys.executable, "-c", "from weft.main import run; run()", *arguments],
            input=stdin, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=300,
        )  # fmt: skip

    return run


@pytest.mark.slow
def test_an_administrator_makes_a_project_with_members_and_a_quota(api: Api, root: Weft) -> None:
    def done(*arguments: str, stdin: str = "") -> str:
        ran = root(*arguments, stdin=stdin)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    done("users", "create", "grace", "--email", "grace@example.org", stdin="first password\n")
    done("projects", "create", "compilers", "--owner", "grace", "--allow-untrusted")
    done("users", "create", "robot", "--no-password")
    done("projects", "add", "compilers", "robot", "--role", "viewer")
    listed = done("projects", "members", "compilers")
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["grace", "owner"], ["robot", "viewer"]]
    assert "compilers (owner)" in done("users", "list")
    done("projects", "quota", "compilers", "--gpus", "4", "--memory", "64GiB")
    table = done("projects", "quota", "compilers", "--jobs", "2", "--gpus", "none")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:]}
    assert rows == {
        "cpus": ["0", "none"], "gpus": ["0", "none"], "memory": ["0", "bytes", "64", "GiB"], "jobs": ["0", "2"],
    }  # fmt: skip
    wrong = root("projects", "quota", "compilers", "--gpus", "many")
    assert (wrong.returncode, "'many' is neither a number nor none" in wrong.stderr) == (2, True)
    assert done("projects", "share", "compilers").split()[-2:] == ["nothing", "yes"]
    shown = (
        done("projects", "share", "compilers", "--weight", "3", "--gpus", "8", "--no-borrow").splitlines()[1].split()
    )
    assert (shown[0], shown[-3:]) == ("3", ["8", "gpus", "no"])
    assert done("projects", "share", "compilers", "--borrow").split()[-3:] == ["8", "gpus", "yes"]
    done("projects", "caps", "compilers", "--priority", "60", "--memory", "8GiB")
    table = done("projects", "caps", "compilers", "--role", "owner", "--jobs", "3")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:]}
    assert rows["priority"] == ["60", "none"]
    assert rows["memory"] == ["8", "GiB", "none"]
    assert rows["jobs"] == ["none", "3"]
    assert done("projects", "caps", "compilers", "--priority", "none").splitlines()[1].split()[1:] == ["none", "none"]
    done("projects", "retention", "compilers", "--logs", "30d", "--results", "90d, 1TiB")
    table = done("projects", "retention", "compilers", "--code", "7d", "--logs", "none")
    kept = {line.split()[0]: " ".join(line.split()[1:]) for line in table.splitlines()[1:]}
    assert kept["logs"] == "ever any size 0 bytes the project's"
    assert kept["results"] == "90 days 1 TiB 0 bytes the project's"
    assert kept["code"] == "7 days any size the project's"
    assert kept["events"] == "ever any size the installation's"
    assert "30 days" not in done("projects", "retention", "compilers", "--results", "default")
    wrong = root("projects", "retention", "compilers", "--code", "1GiB")
    assert (wrong.returncode, "'1GiB' is not an age such as 30d, none, or default" in wrong.stderr) == (2, True)
    token = api.client().post("/api/v1/login", json={"user": "grace", "password": "first password"}).json()["token"]
    done("users", "password", "grace", stdin="second password\n")
    assert api.client(token).get("/api/v1/me").status_code == 200
    done("users", "password", "grace", "--end-tokens", stdin="second password\n")
    assert api.client(token).get("/api/v1/me").status_code == 401
    assert api.client().post("/api/v1/login", json={"user": "grace", "password": "second password"}).status_code == 200
    last = root("projects", "remove", "compilers", "grace")
    assert (last.returncode != 0, "last owner" in last.stderr) == (True, True)
    done("projects", "remove", "compilers", "robot")
    done("users", "disable", "robot")
    [robot] = [line.split() for line in done("users", "list").splitlines() if line.startswith("robot ")]
    assert "disabled" in robot
    done("projects", "delete", "compilers")
    assert "compilers" not in done("projects", "list")


@pytest.mark.slow
def test_an_administrator_reads_who_did_what(api: Api, root: Weft) -> None:
    ann = api.person()
    job = ann.submit()["id"]
    for _ in range(3):
        ann.http.post(f"/api/v1/jobs/{job}/halt")
    ann.http.post("/api/v1/jobs/job-none/halt")
    table = root("audit", "--user", ann.name, "--action", "jobs")
    assert table.returncode == 0, table.stderr
    rows = [line.split() for line in table.stdout.splitlines()[1:]]
    assert [row[4] for row in rows] == ["jobs.halt"] * 4 + ["jobs.submit"]
    assert rows[0][-2:] == ["refused", "(404)"]
    found = json.loads(root("audit", "--object", f"job:{job}", "--outcome", "allowed", "--json", "-n", "2").stdout)
    assert [(record["action"], record["user"], record["object_id"]) for record in found] == [
        ("jobs.halt", ann.name, job)
    ] * 2
    with Client(api.url, ann.token) as client:
        pages = list(client.audit.list(limit=4))
        assert [record.object for record in pages] == ["job:job-none"] + [f"job:{job}"] * 3
        assert [event.user for event in client.jobs.events(job)] == [ann.name] * 2
        events = [event.text for event in client.jobs.events(job)]
    assert events == [f"submitted to engine local (by {ann.name})", f"halt requested (by {ann.name})"]
    assert root("audit", "--since", "yesterday").returncode != 0


def test_the_client_reads_page_after_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.resources.audit._PAGE", 2)
    ann = api.person()
    jobs = [ann.submit()["id"] for _ in range(5)]
    with Client(api.url, ann.token) as client:
        assert [record.object_id for record in client.audit.list()] == jobs[::-1]
        assert [record.object_id for record in client.audit.list(limit=3)] == jobs[:1:-1]


@pytest.mark.slow
def test_a_machine_gets_an_account_and_a_token_that_reads(api: Api, root: Weft) -> None:
    made = root("service-accounts", "create", "ci")
    assert made.returncode == 0, made.stderr
    assert "service:ci@" in made.stderr
    tokens = [
        root("service-accounts", "token", "ci", "--days", "3").stdout.strip(),
        root("service-accounts", "token", "ci", "--role", "viewer").stdout.strip(),
        root("tokens", "create", "looks", "--role", "viewer").stdout.strip(),
    ]
    with Client(api.url, tokens[0]) as client:
        assert client.me().user.startswith("service:ci@")
    roles = []
    for token in tokens:
        with Client(api.url, token) as client:
            roles.append(client.me().role)
    assert roles == ["editor", "viewer", "viewer"]
    [listed] = json.loads(root("service-accounts", "list", "--json").stdout)
    assert (listed["name"], listed["role"], listed["tokens"]) == ("ci", "editor", 2)
    assert "service:ci@" in root("service-accounts", "list").stdout
    assert "viewer" in root("tokens", "list").stdout
    assert root("service-accounts", "delete", "ci").returncode == 0
    assert root("service-accounts", "delete", "ci").returncode != 0
    assert json.loads(root("service-accounts", "list", "--json").stdout) == []


@pytest.mark.slow
def test_an_administrator_forgives_a_node(api: Api, root: Weft) -> None:
    [engine] = api.context.settings.engines
    with api.context.database.transaction() as session:
        session.add(NodeBlame(engine=engine, node="n1", job="job-1", project="prj-1", attempt=1, reason="vanished"))
    done = root("engines", engine, "--forgive", "n1")
    assert (done.returncode, done.stderr.strip()) == (0, "✓ node n1 is forgiven: 1 attempt blamed it")
    again = root("engines", engine, "--forgive", "n1")
    assert again.returncode != 0
    assert f"no job blames node 'n1' of engine {engine}" in again.stderr
    assert "weft engines ENGINE --forgive NODE" in root("engines", "--forgive", "n1").stderr
