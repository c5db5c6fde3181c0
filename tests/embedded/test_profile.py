"""The CLI's profile file, which may hold other installations."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from weft_embedded import profile
from weft_embedded.home import Home

URL, TOKEN = "http://127.0.0.1:8080", "weft_u_ours"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "weft.toml"
    monkeypatch.setenv("WEFT_PROFILE_FILE", str(path))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / ".weft")


def profiles(file: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads(file.read_text())["profiles"]
    return found


def test_first_installation_is_the_default(file: Path, home: Home) -> None:
    assert profile.write_users(home, URL, TOKEN) is None
    assert profiles(file) == {"default": {"url": URL, "token": TOKEN}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_default_stays(file: Path, home: Home) -> None:
    file.parent.mkdir()
    file.write_text('[profiles.default]\nurl = "https://weft.example.org"\ntoken = "weft_u_theirs"\n')
    hint = profile.write_users(home, URL, TOKEN)
    assert hint is not None
    assert "points at https://weft.example.org: use `export WEFT_PROFILE=weft`" in hint
    assert profiles(file)["default"] == {"url": "https://weft.example.org", "token": "weft_u_theirs"}
    assert profiles(file)["weft"] == {"url": URL, "token": TOKEN}


def test_our_own_profile_follows_a_new_port(file: Path, home: Home) -> None:
    profile.write_users(home, URL, TOKEN)
    profile.write_users(home, "http://127.0.0.1:8181", TOKEN)
    assert profiles(file) == {"default": {"url": "http://127.0.0.1:8181", "token": TOKEN}}


def test_a_broken_file_is_left_as_it_is(file: Path, home: Home) -> None:
    file.parent.mkdir()
    file.write_text("[profiles")
    hint = profile.write_users(home, URL, TOKEN)
    assert hint is not None
    assert "is left as it is" in hint
    assert file.read_text() == "[profiles"


def test_names_never_clash(file: Path, home: Home) -> None:
    file.parent.mkdir()
    file.write_text('[profiles.default]\nurl = "https://a"\n[profiles.weft]\nurl = "https://b"\n')
    profile.write_users(home, URL, TOKEN)
    assert profiles(file)["weft-2"] == {"url": URL, "token": TOKEN}
    assert profiles(file)["weft"] == {"url": "https://b"}


def test_the_homes_own_profile_is_written_anew_when_it_is_broken(home: Home) -> None:
    home.path.mkdir()
    home.client_profile.write_text("[profiles")
    assert profile.own_token(home) is None
    profile.write_own(home, URL, TOKEN)
    assert profile.own_token(home) == TOKEN
