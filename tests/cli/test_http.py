"""The transport over a bad network."""

from __future__ import annotations

import socket

import pytest
from tests.cli.double import DROP, Answer, Double, as_json, problem

from weft import errors
from weft.http import Body, Transport
from weft.profile import Server


def test_a_post_is_repeated_with_one_key_until_it_gets_through(double: Double, transport: Transport) -> None:
    double.on("POST", "jobs", problem(503, "database_unavailable"), DROP, Answer(502), as_json({"id": "x"}, 201))
    assert transport.json("POST", "/jobs", json={"manifest": "m"}) == {"id": "x"}
    sent = double.requests("POST", "jobs")
    assert len(sent) == 4
    assert len({one.headers["idempotency-key"] for one in sent}) == 1
    assert all(one.json == {"manifest": "m"} for one in sent)
    assert all(one.headers["authorization"] == "Bearer weft_u_test" for one in sent)


def test_two_posts_have_two_keys(double: Double, transport: Transport) -> None:
    double.on("POST", "jobs", as_json({}))
    transport.json("POST", "/jobs", json={})
    transport.json("POST", "/jobs", json={})
    first, second = double.requests("POST", "jobs")
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_a_body_is_sent_whole_again(double: Double, transport: Transport) -> None:
    double.on("PUT", "code/abc", Answer(503), as_json({}, 201))
    transport.request("PUT", "/code/abc", body=Body(lambda: iter([b"one ", b"two"]), 7))
    assert [one.body for one in double.requests("PUT", "code/abc")] == [b"one two", b"one two"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_manifest", errors.InvalidManifest),
        (400, "invalid_bundle", errors.InvalidBundle),
        (401, "unauthenticated", errors.AuthenticationError),
        (403, "forbidden", errors.PermissionDenied),
        (404, "not_found", errors.NotFound),
        (409, "no_results_yet", errors.Conflict),
        (410, "results_gone", errors.Conflict),
        (500, "internal", errors.ApiError),
    ],
)
def test_a_refusal_is_not_repeated(
    double: Double, transport: Transport, status: int, code: str, kind: type[errors.ApiError]
) -> None:
    double.on("GET", "me", problem(status, code, "why"))
    with pytest.raises(errors.ApiError) as caught:
        transport.json("GET", "/me")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.status) == (code, status)
    assert "why" in caught.value.detail
    assert len(double.seen) == 1


def test_problems_keep_what_the_server_says_of_them(double: Double, transport: Transport) -> None:
    told = {"path": "learners", "message": "not a number", "line": 3, "found": "'two'", "accepted": "1 to 1024"}
    double.on("POST", "jobs", problem(400, "invalid_manifest", problems=[told]))
    with pytest.raises(errors.InvalidManifest) as caught:
        transport.json("POST", "/jobs", json={})
    (found,) = caught.value.problems
    assert vars(found) == told


def test_a_server_that_stays_away_is_named_with_the_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        waits: list[float] = []
        with pytest.raises(errors.Unavailable, match=f"can't reach Weft at {url}.*refused"):
            Transport(Server(url), sleep=waits.append).json("GET", "/me")
    assert len(waits) == 4


def test_a_503_that_stays_says_what_the_server_says(double: Double, transport: Transport) -> None:
    double.on("GET", "me", problem(503, "database_unavailable", "the database does not answer"))
    with pytest.raises(errors.Unavailable, match="the database does not answer"):
        transport.json("GET", "/me")
    assert len(double.seen) == 5


def test_a_delete_whose_answer_was_lost_has_succeeded(double: Double, transport: Transport) -> None:
    double.on("DELETE", "jobs/x", DROP, problem(404, "not_found"))
    assert transport.request("DELETE", "/jobs/x").is_success


def test_a_delete_of_what_is_not_there_has_not(double: Double, transport: Transport) -> None:
    double.on("DELETE", "jobs/x", problem(404, "not_found"))
    with pytest.raises(errors.NotFound):
        transport.request("DELETE", "/jobs/x")


def test_another_web_server_is_recognised(double: Double, transport: Transport) -> None:
    double.on("GET", "me", Answer(200, b"<html>hello</html>", {"Content-Type": "text/html"}))
    with pytest.raises(errors.WeftError, match="is this Weft's URL"):
        transport.json("GET", "/me")


def test_a_token_is_not_carried_along_a_redirect(double: Double, transport: Transport) -> None:
    double.on("GET", "me", Answer(307, b"", {"Location": "http://elsewhere.invalid/"}))
    with pytest.raises(errors.WeftError, match=r"redirects to http://elsewhere\.invalid/"):
        transport.json("GET", "/me")
    assert len(double.seen) == 1


def test_user_and_password_are_exchanged_for_a_token_once(double: Double) -> None:
    double.on("POST", "login", as_json({"token": "weft_u_new"}))
    double.on("GET", "me", as_json({"user": "u"}))
    transport = Transport(Server(double.url, user="ada", password="pw"))
    transport.json("GET", "/me")
    transport.json("GET", "/me")
    (login,) = double.requests("POST", "login")
    assert login.json == {"user": "ada", "password": "pw"}
    assert [one.headers["authorization"] for one in double.requests("GET", "me")] == ["Bearer weft_u_new"] * 2


def test_without_a_token_the_way_to_sign_in_is_told(double: Double) -> None:
    double.on("GET", "me", problem(401, "unauthenticated"))
    with pytest.raises(errors.AuthenticationError, match="weft login"):
        Transport(Server(double.url)).json("GET", "/me")


def test_http_proxy_is_not_asked_for_this_machine(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    double.on("GET", "me", as_json({"user": "u"}))
    assert Transport(Server(double.url, "t")).json("GET", "/me") == {"user": "u"}
