"""Every operation of the API, asked by every kind of caller: the answers are those of ``callers.txt``.

``WRITE_CALLERS=1 pytest tests/security/test_callers.py`` writes the table anew. Read each line that changes: a 2xx, a
400 or a 409 says that the caller came through the door.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete, func, update
from tests.api.conftest import Api

from weft_core.store.models import Member, Token, User
from weft_core.tokens import hash_token, mlflow_token

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parent / "callers.txt"
PUBLIC = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/.well-known/openid-configuration",
    "/.well-known/jwks.json",
    "/api/v1/login",
    "/api/v1/session",
    "/api/v1/session/provider",
    "/api/v1/device",
    "/api/v1/device:token",
    "/api/v1/signin",
    "/api/v1/schema/manifest",
}
"""What a caller without a token may ask for."""
OUTSIDERS = ("nobody", "unknown", "expired", "revoked", "disabled", "removed", "ended")
"""Callers who are nobody to the API, or nobody any more."""
MEMBERS = ("viewer", "editor", "owner")
MACHINES = ("reads", "service")
"""A token of the owner's that may only read, and a service account that is an editor."""
NOWHERE = "job-000000000000"
SOCKET = "SOCKET"
"""In place of a method: a WebSocket's first request."""
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
SOCKETS = (
    "/api/v1/jobs/{job_id}/logs/ws",
    "/api/v1/jobs/{job_id}/tunnels/exec",
    "/api/v1/learner/tunnels/{tunnel_id}?rank=0",
)
"""The OpenAPI document does not have them."""


class Callers:
    """A project with a job, and all kinds of callers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.owner = api.person()
        self.job = self.owner.submit()["id"]
        project = self.owner.project_id
        people = {
            "viewer": api.person("viewer", project),
            "editor": api.person("editor", project),
            "owner": self.owner,
            "foreign": api.person(),
            "admin": api.person(),
            "expired": api.person("owner", project),
            "revoked": api.person("owner", project),
            "disabled": api.person("owner", project),
            "removed": api.person("owner", project),
        }
        ended = api.attempt(self.job)
        api.end_attempt(ended)
        attempt = api.attempt(self.job)
        learner = mlflow_token(attempt.token)
        api.set_attempt(attempt, mlflow_sha256=hash_token(learner))
        ids = {name: person.user_id for name, person in people.items()}
        now = func.now()
        with api.context.database.transaction() as session:
            session.execute(update(User).where(User.id == ids["admin"]).values(is_admin=True))
            session.execute(update(User).where(User.id == ids["disabled"]).values(disabled_at=now))
            session.execute(update(Token).where(Token.user_id == ids["expired"]).values(expires_at=now))
            session.execute(update(Token).where(Token.user_id == ids["revoked"]).values(revoked_at=now))
            session.execute(delete(Member).where(Member.user_id == ids["removed"]))
        tokens = {name: person.token for name, person in people.items()}
        tokens |= {"unknown": "weft_u_" + "x" * 43, "ended": ended.token}
        tokens |= {"learner": attempt.token, "mlflow": f"{learner}.0"}
        tokens["reads"] = self._made(self.owner.http, "tokens", role="viewer")
        self.owner.http.post("/api/v1/service-accounts", json={"name": "ci", "role": "editor"}).raise_for_status()
        tokens["service"] = self._made(self.owner.http, "service-accounts/ci/tokens")
        self.clients: dict[str, httpx.Client] = {"nobody": api.client()}
        self.clients |= {name: api.client(tokens[name]) for name in (*OUTSIDERS[1:], "learner", "mlflow", "foreign")}
        self.clients |= {name: api.client(tokens[name]) for name in (*MEMBERS, *MACHINES, "admin")}
        # A page of another site that uses the browser of the owner, who is signed in.
        browser = api.client()
        opened = browser.post("/api/v1/session", json={"token": self.owner.token})
        assert opened.status_code < 300, opened.text
        self.clients["cross-site"] = browser

    @staticmethod
    def _made(by: httpx.Client, path: str, **body: str) -> str:
        answer = by.post(f"/api/v1/{path}", json={"name": "test", **body})
        return str(answer.raise_for_status().json()["token"])

    def ask(self, caller: str, method: str, path: str) -> int:
        """The status of the answer to a request about the project's job."""
        # Whoever may change something asks about a job that is not there, or the next caller would find none.
        changes = method not in ("GET", "HEAD") and caller in (*MEMBERS, *MACHINES, "admin", "learner", "mlflow")
        values = {"job_id": NOWHERE if changes else self.job, "model_id": NOWHERE if changes else self.job}
        project = "nowhere" if changes else self.owner.project
        values |= {"project": project, "name": project if "/projects/" in path else "nothing"}
        url = re.sub(r"\{(\w+)[^}]*\}", lambda found: values.get(found[1], "nothing"), path)
        if method == SOCKET:
            with self.clients[caller].stream("GET", url, headers=UPGRADE) as answer:
                return answer.status_code
        with self.clients[caller].stream(method, url, json=None if method == "GET" else {}) as answer:
            return answer.status_code


@pytest.fixture(scope="module")
def callers(api: Api) -> Callers:
    return Callers(api)


@pytest.fixture(scope="module")
def answers(api: Api, callers: Callers) -> dict[str, dict[str, int]]:
    """By operation and caller."""
    operations = sorted(
        (path, method.upper())
        for path, item in api.openapi["paths"].items()
        for method in item
        if method in ("get", "post", "put", "patch", "delete", "head")
    )
    operations += [(path, SOCKET) for path in SOCKETS]
    return {
        f"{method} {path}": {caller: callers.ask(caller, method, path) for caller in callers.clients}
        for path, method in operations
    }


def test_the_answers_are_those_of_the_table(answers: dict[str, dict[str, int]]) -> None:
    names = list(next(iter(answers.values())))
    width = max(map(len, answers))
    rows = [f"{'':{width}}  " + " ".join(f"{name:>10}" for name in names)]
    rows += [
        f"{operation:{width}}  " + " ".join(f"{row[name]:>10}" for name in names)
        for operation, row in answers.items()
        if operation != "GET /readyz"  # 503 while a server is slow
    ]
    text = "\n".join(rows) + "\n"
    if os.environ.get("WRITE_CALLERS"):
        TABLE.write_text(text)
    assert text == TABLE.read_text()


def test_nobody_comes_in(answers: dict[str, dict[str, int]]) -> None:
    came_in = {
        (operation, caller): row[caller]
        for operation, row in answers.items()
        for caller in OUTSIDERS
        if operation.split()[1] not in PUBLIC
        and row[caller] not in ((400, 401, 410) if caller == "ended" else (401,))
        and (caller, operation, row[caller]) != ("ended", f"{SOCKET} {SOCKETS[-1]}", 404)  # no tunnel waits for it
    }
    assert came_in == {}


def test_no_page_of_another_site_changes_anything(answers: dict[str, dict[str, int]]) -> None:
    changed = {
        operation: row["cross-site"]
        for operation, row in answers.items()
        if not operation.startswith(("GET", "HEAD"))
        and operation.split()[1] not in PUBLIC
        and row["cross-site"] not in (401, 403)
    }
    assert changed == {}


def test_another_project_has_nothing(answers: dict[str, dict[str, int]]) -> None:
    """Neither for its owner nor for an administrator, who is no member."""
    found = {
        (operation, caller): row[caller]
        for operation, row in answers.items()
        for caller in ("foreign", "admin")
        if re.search(r"\{(job_id|model_id)", operation) and row[caller] < 400
    }
    assert found == {}


def test_no_request_is_an_error_of_the_servers(answers: dict[str, dict[str, int]]) -> None:
    assert {
        (operation, caller): status
        for operation, row in answers.items()
        for caller, status in row.items()
        if status >= 500 and operation != "GET /readyz"
    } == {}
