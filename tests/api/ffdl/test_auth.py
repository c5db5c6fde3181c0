"""The sign-in with each form of credentials that FfDL's clients send."""

from __future__ import annotations

import base64

import pytest
from sqlalchemy import update
from tests.api.conftest import PASSWORD, Api, Person
from tests.api.ffdl.wire import Wire, read

from weft_core.hashing import Hasher
from weft_core.ids import new_id
from weft_core.store.models import Member, Project, User
from weft_core.tokens import hash_password, verify_password


def _status(wire: Wire, *lines: str) -> int:
    """The answer to a request that identifies its caller by these headers only."""
    with wire.connect() as connection:
        text = "\r\n".join(("GET /v1/models HTTP/1.1", "Host: x", *lines, "", ""))
        connection.sendall(text.encode())
        answer = read(connection)
    if answer.status != 200:
        answer.error()
    if answer.status == 401:
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="Weft"'
    return answer.status


def basic(text: str) -> str:
    return "Authorization: Basic " + base64.b64encode(text.encode()).decode()


def test_ways_in(api: Api, ann: Person, wire: Wire) -> None:
    token, name = ann.token, ann.name
    for lines in (
        [basic(f"{name}:{PASSWORD}")],
        [basic(f"{ann.project}/{name}:{PASSWORD}")],
        [basic(f"{token}:whatever")],
        [basic(f"{token}:")],
        [basic(f"{name}:{token}")],
        [f"authorization: bearer {token}"],
        [f"X-Watson-Userinfo: bluemix-instance-id={token}"],
        [f"x-watson-userinfo: a=b; bluemix-instance-id={token};region=us-south"],
        # The client's own: both, with a plain user name in the second.
        [basic(f"{name}:{PASSWORD}"), f"X-Watson-Userinfo: bluemix-instance-id={name}"],
        [basic(f"{name}:{PASSWORD}"), "Sec-Fetch-Site: same-origin"],
    ):
        assert _status(wire, *lines) == 200, lines


def test_ways_that_lead_nowhere(api: Api, ann: Person, bob: Person, wire: Wire) -> None:
    attempt = api.attempt(ann.submit()["id"])
    for lines in (
        [],
        [f"X-Watson-Userinfo: bluemix-instance-id={ann.name}"],  # FfDL believed it
        [f"X-Watson-Userinfo: {ann.token}"],
        ["X-Watson-Userinfo: bluemix-instance-id=weft_u_unknown"],
        [basic(f"{bob.name}:{ann.token}")],
        [basic(f"other/{ann.name}:{ann.token}")],
        [basic(f"{bob.project}/{ann.name}:{PASSWORD}")],
        [basic(f"{ann.name}:")],
        [basic("nobody:nothing")],
        [basic("nul\0:nothing")],
        [basic("no colon")],
        ["Authorization: Basic %%%"],
        ["Authorization: Basic"],
        ["Authorization: Digest x"],
        [basic(f"{attempt.token}:x")],
        [f"Authorization: Bearer {attempt.token}"],
        # What it says first counts.
        [basic("nobody:nothing"), f"X-Watson-Userinfo: bluemix-instance-id={ann.token}"],
        # A page of another site, in a browser that remembers the password.
        [basic(f"{ann.name}:{PASSWORD}"), "Sec-Fetch-Site: cross-site"],
        [basic(f"{ann.token}:x"), "Sec-Fetch-Site: same-site"],
    ):
        assert _status(wire, *lines) in (401, 403), lines


@pytest.mark.slow
def test_a_password_is_hashed_once_and_a_change_counts_at_once(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(password: str, hashed: str) -> bool:
        asked.append(password)
        return verify_password(password, hashed)

    monkeypatch.setattr(Hasher, "verify", lambda _, password, hashed: counted(password, hashed))
    wire = Wire(api.url, ann.name, PASSWORD)
    assert [wire.get("/v1/models").status for _ in range(5)] == [200] * 5
    assert asked == [PASSWORD], "the client sends it with each call"
    assert Wire(api.url, ann.name, PASSWORD + "x").get("/v1/models").status == 401
    with api.context.database.transaction() as session:
        hashed = hash_password("another one")
        session.execute(update(User).where(User.id == ann.user_id).values(password_hash=hashed))
    assert wire.get("/v1/models").status == 401
    assert Wire(api.url, ann.name, "another one").get("/v1/models").status == 200
    # The number of guesses is limited; a caller who was let in a moment ago still gets in.
    wrong = Wire(api.url, ann.name, "wrong")
    codes = [wrong.get("/v1/models").status for _ in range(12)]
    assert set(codes) == {401, 429}
    assert wrong.get("/v1/models").headers["Retry-After"]
    assert Wire(api.url, ann.name, "another one").get("/v1/models").status == 200
    with api.context.database.transaction() as session:
        session.execute(update(Member).where(Member.user_id == ann.user_id).values(role="viewer"))
    mine = Wire(api.url, ann.name, "another one")
    assert mine.get("/v1/models").status == 200
    answer = mine.train("name: x\nframework: {name: python, command: x}", None)
    assert (answer.status, "role editor" in answer.error()) == (400, True)
    assert mine.call("DELETE", "/v1/models/x").status == 401
    assert mine.call("PATCH", "/v1/models/x", b'{"status":"halt"}\n').status == 403, "a 400 would show nothing"
    with api.context.database.transaction() as session:
        session.execute(update(User).where(User.id == ann.user_id).values(disabled_at=User.created_at))
    assert mine.get("/v1/models").status in (401, 429)


def test_one_of_several_projects(api: Api, ann: Person) -> None:
    with api.context.database.transaction() as session:
        other = Project(id=new_id("prj"), name=new_id("zebra"))
        session.add(other)
        session.flush()
        session.add(Member(project_id=other.id, user_id=ann.user_id, role="owner"))
        name = other.name
    job_id = ann.submit()["id"]
    answer = Wire(api.url, ann.name, PASSWORD).get("/v1/models")
    assert answer.status == 400
    assert "PROJECT/USER" in answer.error()
    models = Wire(api.url, f"{ann.project}/{ann.name}", PASSWORD).get("/v1/models").json()["models"]
    assert [model["model_id"] for model in models] == [job_id]
    assert Wire(api.url, f"{name}/{ann.name}", PASSWORD).get("/v1/models").json() == {"models": []}


def test_a_password_follows_a_log(api: Api, ann: Person) -> None:
    wire = Wire(api.url, ann.name, PASSWORD)
    attempt = api.attempt(ann.submit()["id"])
    (agent,) = attempt.agents
    agent.start()
    with wire.websocket(f"/v1/models/{attempt.job_id}/logs") as socket:
        agent.log(0, "hello")
        assert next(iter(socket)) == "hello\n"
