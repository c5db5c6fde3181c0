"""The choice of server and token: precedence, and tokens that go only to their own server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from weft.errors import ConfigurationError
from weft.profile import normalise_url, read_profiles, resolve, write_profile


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "weft" / "config.toml"
    write_profile(path, "default", "http://profile.test", "weft_u_profile")
    write_profile(path, "other", "http://other.test", "weft_u_other")
    return {"WEFT_PROFILE_FILE": str(path)}


def test_flags_win_over_weft_over_dlaas_over_the_profile(env: dict[str, str]) -> None:
    assert resolve(environ=env).url == "http://profile.test"
    env |= {"DLAAS_URL": "http://dlaas.test/v1", "DLAAS_USERNAME": "weft_u_dlaas", "DLAAS_PASSWORD": "x"}
    assert (resolve(environ=env).url, resolve(environ=env).token) == ("http://dlaas.test", "weft_u_dlaas")
    env |= {"WEFT_URL": "http://weft.test/", "WEFT_TOKEN": "weft_u_weft"}
    assert (resolve(environ=env).url, resolve(environ=env).token) == ("http://weft.test", "weft_u_weft")
    flagged = resolve("http://flag.test", "weft_u_flag", environ=env)
    assert (flagged.url, flagged.token) == ("http://flag.test", "weft_u_flag")


def test_a_user_name_that_is_no_token_signs_in_with_the_password(env: dict[str, str]) -> None:
    env |= {"DLAAS_URL": "http://dlaas.test", "DLAAS_USERNAME": "ada", "DLAAS_PASSWORD": "pw"}
    server = resolve(environ=env)
    assert (server.token, server.user, server.password) == (None, "ada", "pw")


def test_a_token_goes_to_no_other_server(env: dict[str, str]) -> None:
    assert resolve("http://stranger.test", environ=env).token is None
    env |= {"WEFT_URL": "http://weft.test", "WEFT_TOKEN": "weft_u_weft"}
    assert resolve("http://stranger.test", environ=env).token is None
    assert resolve(profile="other", environ=env).token == "weft_u_other"


def test_a_url_that_a_profile_knows_finds_its_token(env: dict[str, str]) -> None:
    assert resolve("http://other.test/", environ=env).token == "weft_u_other"
    assert resolve(environ=env | {"WEFT_URL": "http://other.test"}).token == "weft_u_other"


def test_weft_token_alone_goes_to_the_profiles_server(env: dict[str, str]) -> None:
    server = resolve(environ=env | {"WEFT_TOKEN": "weft_u_env"})
    assert (server.url, server.token) == ("http://profile.test", "weft_u_env")


def test_a_profile_is_chosen_by_flag_or_environment(env: dict[str, str]) -> None:
    assert resolve(profile="other", environ=env).url == "http://other.test"
    assert resolve(environ=env | {"WEFT_PROFILE": "other"}).url == "http://other.test"
    with pytest.raises(ConfigurationError, match="default, other"):
        resolve(profile="none", environ=env)


def test_with_nothing_the_ways_to_go_on_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"weft login.*WEFT_URL.*weft up"):
        resolve(environ={"WEFT_PROFILE_FILE": str(tmp_path / "none.toml")})


def test_the_file_is_its_owners_only_and_keeps_other_profiles(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    write_profile(path, "default", "http://a.test", 'weft_u_"quoted"\\')
    path.chmod(0o644)
    write_profile(path, "two words", "http://b.test", None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_profiles(path) == {
        "default": {"url": "http://a.test", "token": 'weft_u_"quoted"\\'},
        "two words": {"url": "http://b.test"},
    }
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[profiles\n")
    with pytest.raises(ConfigurationError, match=rf"{path} is not TOML"):
        resolve(environ={"WEFT_PROFILE_FILE": str(path)})


def test_secrets_stay_out_of_representations(env: dict[str, str]) -> None:
    server = resolve(environ=env | {"DLAAS_URL": "http://d.test", "DLAAS_USERNAME": "ada", "DLAAS_PASSWORD": "pw-1"})
    assert "pw-1" not in repr(server)
    assert "weft_u_profile" not in repr(resolve(environ=env))


@pytest.mark.parametrize("token", ["weft_u_\nx", "weft u", "weft_ü"])
def test_a_token_with_foreign_characters_is_refused_in_words(env: dict[str, str], token: str) -> None:
    with pytest.raises(ConfigurationError, match="copy it again"):
        resolve(token=token, environ=env)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("weft.test:8080", "http://weft.test:8080"),
        ("https://weft.test/api/v1/", "https://weft.test"),
        ("http://weft.test/base/v1", "http://weft.test/base"),
    ],
)
def test_urls_are_brought_into_one_form(given: str, url: str) -> None:
    assert normalise_url(given) == url


@pytest.mark.parametrize(
    "given",
    [
        "ftp://x",
        "http://",
        "http://a b",
        "http://x:port",
        "http://[::1",
        "http://x/?token=y",
        "http://user:pw@weft.test",
    ],
)
def test_what_is_no_server_url_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError):
        normalise_url(given)
