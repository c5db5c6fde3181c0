"""Every route of the API, asked by every kind of caller: the answers are those of ``callers.txt``.

The routes are those that the application serves: the HTTP API, FfDL's and MLflow's wire protocols, and WebSockets. A
route without a row fails. ``WRITE_CALLERS=1 pytest tests/security/test_callers.py`` writes the table anew. Read each
line that changes: a 101, a 2xx, a 400 or a 409 says that the caller came through the door.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import func, update
from starlette.routing import Mount, Route
from tests.api.conftest import PASSWORD, Api, Person

from weft_api.access import sign_in_limits
from weft_api.access.auth import COOKIE
from weft_core.store.models import Token, User
from weft_core.tokens import hash_token, mlflow_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # thousands of requests, on a machine that is busy, too

TABLE = Path(__file__).parent / "callers.txt"
WEBSOCKET = "WEBSOCKET"
PUBLIC = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/health",
    "/.well-known/openid-configuration",
    "/.well-known/jwks.json",
    "/api/v1/login",
    "/api/v1/session",
    "/api/v1/session/provider",
    "/api/v1/device",
    "/api/v1/device:token",
    "/api/v1/signin",
    "/api/v1/schema/manifest",
    "/docs",
    "/docs/start.js",
    "/docs/openapi.json",
    "/openapi.json",
    "/api/2.0/{path}",  # nothing is served there
    "/api/3.0/{path}",
    "/api/2.0/mlflow-artifacts/mpu/{path}",  # always refused
}
"""What a caller without a token may ask for."""
FILES = {"/assets/{path}", "/docs/static/{path}", "/{path}"}
"""The files of the dashboard and of the documentation, which are not asked."""
ENDED = ("expired", "revoked", "disabled", "removed", "changed")
"""People who were signed in. Then their token expired or was revoked, they were disabled or removed from the project,
or an administrator gave them a new password and ended what they had open."""
OUTSIDERS = (
    *("nobody", "unknown", *ENDED),
    *(f"session-{name}" for name in ("revoked", "disabled", "removed", "changed", "closed")),
    *(f"basic-{name}" for name in ("revoked", "disabled", "removed", "changed")),
    "ended",
)
"""Callers who are nobody to the API, or nobody any more; ``session-closed`` has signed out, and ``ended`` is the token
of an attempt that is over. HTTP Basic carries a name and a password, and for ``basic-revoked`` a token as the name."""
MEMBERS = ("viewer", "editor", "owner", "session", "basic")
"""``session`` and ``basic`` are the owner's browser, and the owner's password."""
MACHINES = ("reads", "service")
"""A token of the owner's that may only read, and a service account that is an editor."""
STRANGERS = ("foreign", "basic-foreign", "admin")
"""Those who are signed in to another project; the last one is an administrator."""
CROSS_SITE = ("cross-site", "cross-basic")
"""Pages of another site in the browser of the owner: signed in, or with a password that was typed once."""
NOWHERE = "job-000000000000"


@dataclass(frozen=True, order=True)
class Operation:
    path: str
    method: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(api: Api) -> Iterator[Operation]:
    """All that the application serves, but files."""
    for context in iter_route_contexts(api.app.routes):
        path = context.path_format or ""
        if path in FILES:
            assert isinstance(context.original_route, Mount | Route), path
            continue
        for method in context.methods or [WEBSOCKET]:
            yield Operation(path, method)


class Line:
    """A connection with the headers of a caller. 7,000 requests of httpx would take more time than their answers."""

    def __init__(self, client: httpx.Client) -> None:
        self._headers = {name: value for name, value in client.headers.items() if name.startswith(_TELLING)}
        self._connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=120)

    def ask(self, method: str, target: str, body: str | None, more: Mapping[str, str]) -> int:
        """The status of the answer. What has no known end, such as a stream, is not read."""
        connection = self._connection
        if connection.sock and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # the server has closed it
        connection.request(method, target, body, {**self._headers, **more})
        answer = connection.getresponse()
        if answer.length is None or answer.status == 101:
            connection.close()
        else:
            answer.read()
        return answer.status

    def close(self) -> None:
        self._connection.close()


_TELLING = ("accept", "authorization", "cookie", "origin", "sec-fetch-", "user-agent", "x-weft-")
"""The headers that may say who asks, and from where."""


class Callers:
    """A project with a job, and all kinds of callers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._owner = owner = api.person()
        self._objects = self._made_by_owner()
        self._nothing = {"job": NOWHERE, "experiment": "999999999", "model": f"m-{'0' * 32}", "project": "nowhere"}
        people = {name: api.person("owner", owner.project_id) for name in ENDED}
        people |= {role: api.person(role, owner.project_id) for role in ("viewer", "editor")}
        people |= {"owner": owner, "foreign": api.person(), "admin": api.person()}
        ended = api.attempt(self._objects["job"])
        api.end_attempt(ended)
        attempt = api.attempt(self._objects["job"])
        learner = mlflow_token(attempt.token)
        api.set_attempt(attempt, mlflow_sha256=hash_token(learner))
        with api.context.database.transaction() as session:
            session.execute(update(User).where(User.id == people["admin"].user_id).values(is_admin=True))
        tokens = {name: person.token for name, person in people.items()}
        tokens |= {"unknown": "weft_u_" + "x" * 43, "ended": ended.token}
        tokens |= {"learner": attempt.token, "mlflow": f"{learner}.0"}
        tokens["reads"] = self._token("tokens", role="viewer")
        owner.http.post("/api/v1/service-accounts", json={"name": "ci", "role": "editor"}).raise_for_status()
        tokens["service"] = self._token("service-accounts/ci/tokens")
        clients = {name: api.client(token) for name, token in tokens.items()} | {"nobody": api.client()}
        clients |= {"session": self._browser(owner), "session-closed": self._browser(owner)}
        clients["cross-site"] = self._browser(owner, own_page=False)
        clients |= {f"session-{name}": self._browser(people[name]) for name in ENDED if name != "expired"}
        clients |= {f"basic-{name}": self._by_password(people[name]) for name in ("disabled", "removed", "changed")}
        clients |= {"basic": self._by_password(owner), "basic-foreign": self._by_password(people["foreign"])}
        clients["cross-basic"] = self._by_password(owner)
        clients["basic-revoked"] = self._basic(people["revoked"].token, "unused")
        for name in OUTSIDERS:
            if name not in ("nobody", "unknown", "ended"):
                assert self._comes_in(clients[name]), name
        clients["cross-basic"].headers["Sec-Fetch-Site"] = "cross-site"
        self._end(people, clients)
        order = (*OUTSIDERS, "learner", "mlflow", *STRANGERS, *MEMBERS, *MACHINES, *CROSS_SITE)
        assert set(order) == set(clients)
        self.names = order
        self._lines = {name: Line(clients[name]) for name in order}

    def _made_by_owner(self) -> dict[str, str]:
        """What other callers ask for, by kind."""
        http = self._owner.http

        def made(kind: str, body: dict[str, str]) -> Any:
            return http.post(f"/api/2.0/mlflow/{kind}", json=body).raise_for_status().json()

        job = self._owner.submit()["id"]
        experiment = made("experiments/create", {"name": "mine"})["experiment_id"]
        model = made("logged-models", {"experiment_id": experiment, "name": "mine"})["model"]["info"]["model_id"]
        return {"job": job, "experiment": experiment, "model": model, "project": self._owner.project}

    def _token(self, path: str, **body: str) -> str:
        answer = self._owner.http.post(f"/api/v1/{path}", json={"name": "test", **body})
        return str(answer.raise_for_status().json()["token"])

    def _browser(self, person: Person, *, own_page: bool = True) -> httpx.Client:
        """A browser that ``person`` is signed in with, and a page of this server or of another site in it.

        The cookie is a header here, so that no answer takes it away.
        """
        opened = self._api.client().post("/api/v1/session", json={"token": person.token})
        client = self._api.client()
        client.headers["Cookie"] = f"{COOKIE}={opened.raise_for_status().cookies[COOKIE]}"
        client.headers.update(
            {"Origin": self._api.url, "X-Weft-Session": "1", "Sec-Fetch-Site": "same-origin"}
            if own_page
            else {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
        )
        return client

    def _basic(self, name: str, password: str) -> httpx.Client:
        client = self._api.client()
        client.headers["Authorization"] = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
        return client

    def _by_password(self, person: Person) -> httpx.Client:
        return self._basic(person.name, PASSWORD)

    @staticmethod
    def _comes_in(client: httpx.Client) -> bool:
        basic = client.headers.get("Authorization", "").startswith("Basic ")
        path = "/v1/models" if basic else "/api/v1/me"
        return client.get(path).status_code == 200

    def _end(self, people: dict[str, Person], clients: dict[str, httpx.Client]) -> None:
        admin, owner = clients["admin"], self._owner
        with self._api.context.database.transaction() as session:
            expired = update(Token).where(Token.user_id == people["expired"].user_id)
            session.execute(expired.values(expires_at=func.now()))
        tokens = clients["revoked"].get("/api/v1/tokens").json()["tokens"]
        (own,) = [token for token in tokens if people["revoked"].token.startswith(token["prefix"])]
        answers = [
            clients["revoked"].delete(f"/api/v1/tokens/{own['id']}"),
            admin.patch(f"/api/v1/users/{people['disabled'].name}", json={"disabled": True}),
            owner.http.delete(f"/api/v1/projects/{owner.project}/members/{people['removed'].name}"),
            admin.patch(
                f"/api/v1/users/{people['changed'].name}",
                json={"password": "another long password", "end_tokens": True},
            ),
            clients["session-closed"].delete("/api/v1/session"),
        ]
        for answer in answers:
            assert answer.status_code < 300, answer.text

    def ask(self, caller: str, operation: Operation) -> int:
        """The status of the answer to a request about the project's job, or what else the owner has made."""
        method, path = operation.method, operation.path
        # Whoever may change something asks about what is not there, or the next caller would find none.
        safe = method in ("GET", "HEAD", WEBSOCKET) or caller in (*OUTSIDERS, *STRANGERS[:2], *CROSS_SITE)
        known = self._objects if safe else self._nothing
        values = {"job_id": known["job"], "model_id": known["job"], "project": known["project"]}
        values |= {"path": f"{known['job']}/model.pt"}
        values["name"] = known["project"] if "/projects/" in path else "nothing"
        mlflow = path.startswith("/api/2.0/mlflow")
        told: dict[str, Any] = {}
        if mlflow:
            values["model_id"] = known["model"]
            told = {"run_id": known["job"], "experiment_id": known["experiment"], "model_id": known["model"]}
            told |= {"path": known["job"], "metric_key": "loss"}
        url = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "nothing"), path)
        line = self._lines[caller]
        if method == WEBSOCKET:
            return line.ask("GET", url, None, _UPGRADE)
        if operation == Operation("/api/v1/session", "DELETE") and caller == "session":
            line = Line(self._browser(self._owner))  # the caller is to stay signed in
        if method in ("GET", "HEAD"):
            return line.ask(method, f"{url}?{urlencode(told)}" if told else url, None, {})
        return line.ask(method, url, json.dumps(told), {"Content-Type": "application/json"})

    def close(self) -> None:
        for line in self._lines.values():
            line.close()


_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    "Sec-WebSocket-Version": "13",
}


@pytest.fixture(scope="module")
def callers(api: Api) -> Iterator[Callers]:
    with pytest.MonkeyPatch.context() as patch:
        # `basic-changed` guesses at each route of FfDL's.
        patch.setattr(sign_in_limits, "_PER_USER_AND_ADDRESS", 1000)
        asking = Callers(api)
        yield asking
        asking.close()


Answers = dict[Operation, dict[str, int]]


@pytest.fixture(scope="module")
def answers(api: Api, callers: Callers) -> Answers:
    """By operation and caller."""
    return {
        operation: {caller: callers.ask(caller, operation) for caller in callers.names}
        for operation in sorted(operations(api))
    }


def test_the_answers_are_those_of_the_table(answers: Answers) -> None:
    names = list(next(iter(answers.values())))
    width = max(len(str(operation)) for operation in answers)
    rows = [f"{'':{width}}  " + " ".join(names)]
    rows += [
        f"{operation!s:{width}}  " + " ".join(f"{row[name]:>{len(name)}}" for name in names)
        for operation, row in answers.items()
        if operation.path != "/readyz"  # 503 while a server is slow
    ]
    text = "\n".join(rows) + "\n"
    if os.environ.get("WRITE_CALLERS"):
        TABLE.write_text(text)
    assert text == TABLE.read_text()


def test_all_that_is_documented_is_asked(api: Api, answers: Answers) -> None:
    documented = {Operation(path, method.upper()) for path, item in api.openapi["paths"].items() for method in item}
    assert documented <= set(answers)


def test_nobody_comes_in(answers: Answers) -> None:
    came_in = {
        (str(operation), caller): row[caller]
        for operation, row in answers.items()
        for caller in OUTSIDERS
        if operation.path not in PUBLIC and row[caller] not in _refusals(operation, caller)
    }
    assert came_in == {}


def _refusals(operation: Operation, caller: str) -> tuple[int, ...]:
    if operation.method == WEBSOCKET:
        return (400, 401, 403) if caller == "ended" else (401, 403)
    return (400, 401, 410) if caller == "ended" else (401,)


def test_no_page_of_another_site_changes_anything(answers: Answers) -> None:
    changed = {
        (str(operation), caller): row[caller]
        for operation, row in answers.items()
        for caller in CROSS_SITE
        if operation.method not in ("GET", "HEAD")
        and operation.path not in PUBLIC
        # FfDL's client shows the text of a 400 alone, so a refused submission is one.
        and row[caller] not in ((400,) if str(operation) == "POST /v1/models" else (401, 403))
    }
    assert changed == {}


def test_another_project_has_nothing(answers: Answers) -> None:
    """Neither for its owner nor for an administrator, who is no member."""
    found = {
        (str(operation), caller): row[caller]
        for operation, row in answers.items()
        for caller in STRANGERS
        if re.search(r"\{(job_id|model_id|path)|/mlflow/", operation.path)
        and row[caller] < 400
        and str(operation) not in _OWN
    }
    assert found == {}


_OWN = {f"{method} /api/2.0/mlflow/{kind}/search" for method in ("GET", "POST") for kind in ("experiments", "runs")}
_OWN |= {"POST /api/2.0/mlflow/logged-models/search"}
"""Searches: what they find is the caller's own."""


def test_no_request_is_an_error_of_the_servers(answers: Answers) -> None:
    assert {
        (str(operation), caller): status
        for operation, row in answers.items()
        for caller, status in row.items()
        if status >= 500 and status != 501 and operation.path != "/readyz"  # 501 says that it is not served
    } == {}
