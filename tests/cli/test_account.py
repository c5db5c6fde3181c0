"""``weft login`` signs in by token or password, hides the credentials, and prints links that sign a browser in."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import Answer, Double, as_json, problem

from weft.exits import ExitCode


def test_login_reads_the_token_from_stdin_and_never_prints_it(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("GET", "me", as_json({"user": "ada", "project": "vision", "role": "editor"}))
    monkeypatch.delenv("WEFT_TOKEN")
    monkeypatch.setattr(sys, "stdin", io.StringIO("weft_u_fresh\n"))
    done = weft("login", double.url, "--token")
    assert done.code == 0
    assert "ada" in done.err
    assert "weft_u_fresh" not in done.out + done.err
    path = tmp_path / "profile" / "config.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "weft_u_fresh" in path.read_text()
    assert double.requests("GET", "me")[0].headers["authorization"] == "Bearer weft_u_fresh"


def test_login_by_password_keeps_the_token(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("POST", "login", as_json({"token": "weft_u_issued"}))
    double.on("GET", "me", as_json({"user": "ada", "project": "vision", "role": "editor"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass word\n"))
    assert weft("login", double.url, "--user", "ada").code == 0
    assert double.requests("POST", "login")[0].json == {"user": "ada", "password": "pass word"}
    assert "authorization" not in double.seen[0].headers
    assert "weft_u_issued" in (tmp_path / "profile" / "config.toml").read_text()


def test_a_refused_login_keeps_the_old_profile(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    double.on("POST", "login", problem(401, "unauthenticated", "wrong user name or password"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("nope\n"))
    done = weft("login", double.url, "--user", "ada")
    assert done.code == ExitCode.DENIED
    assert "wrong user name or password" in done.err
    assert not (tmp_path / "profile" / "config.toml").exists()


def test_login_sends_no_password_to_another_server(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("GET", "session", Answer(200, b"<title>Shop</title>", {"Content-Type": "text/html"}))
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    done = weft("login", double.url, "--user", "ada")
    assert done.code == ExitCode.UNREACHABLE
    assert "does not answer as Weft does: GET /api/v1/session got 200 OK and an HTML page, 'Shop'" in done.err
    assert [seen.path for seen in double.seen] == ["/api/v1/session"]
    assert "Traceback" not in done.err


def test_a_sign_in_link_is_printed_and_nothing_is_kept(double: Double, weft: Weft, tmp_path: Path) -> None:
    made = {"path": "/signin#weft_l_secret", "expires_at": "2026-01-31T08:25:02Z"}
    double.on("POST", "session/links", as_json(made, 201))
    done = weft("login", "--browser")
    assert (done.code, done.out) == (0, f"{double.url}/signin#weft_l_secret\n")
    assert "signs in one browser, until 2026-" in done.err
    assert double.seen[0].headers["authorization"] == "Bearer weft_u_test"
    assert not (tmp_path / "profile").exists()
    assert weft("login", "--browser", "--token").code == ExitCode.USAGE


def test_login_by_a_code_waits_for_the_user(
    double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = {
        "device_code": "weft_d_secret",
        "user_code": "BCDF-GHJK",
        "path_complete": "/device?code=BCDF-GHJK",
        "interval": 3,
    }
    waited: list[float] = []
    monkeypatch.setattr("weft.client.time.sleep", waited.append)
    double.on("POST", "device", as_json(made, 201))
    pending = [problem(400, code) for code in ("authorization_pending", "slow_down", "authorization_pending")]
    double.on("POST", "device:token", *pending, as_json({"token": "weft_u_issued"}))
    double.on("GET", "me", as_json({"user": "ada@acme", "project": "vision", "role": "editor"}))
    done = weft("login", double.url, "--sso", "--project", "vision")
    assert (done.code, done.out) == (0, f"{double.url}/device?code=BCDF-GHJK\n")
    assert "BCDF-GHJK" in done.err
    assert "ada@acme" in done.err
    assert "weft_d_secret" not in done.out + done.err
    asked = double.requests("POST", "device")[0]
    assert asked.json["project"] == "vision"
    assert asked.json["client"].startswith("weft on ")
    assert waited == [3, 8, 8]
    assert "authorization" not in asked.headers
    assert "weft_u_issued" in (tmp_path / "profile" / "config.toml").read_text()


def test_a_refused_code_keeps_the_old_profile(double: Double, weft: Weft, tmp_path: Path) -> None:
    made = {"device_code": "weft_d_secret", "user_code": "BCDF-GHJK", "path_complete": "/device", "interval": 0}
    double.on("POST", "device", as_json(made, 201))
    double.on("POST", "device:token", problem(400, "access_denied", "the sign-in was refused on Weft's page"))
    done = weft("login", double.url, "--sso")
    assert done.code != 0
    assert "the sign-in was refused" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "profile" / "config.toml").exists()
    assert weft("login", double.url, "--sso", "--token").code == ExitCode.USAGE
