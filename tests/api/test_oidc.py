"""Signing in through an identity provider, which runs as a process of its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from tests.api.conftest import Api, Person, code_of
from tests.identity_provider import SECRET, IdentityProvider, identity_provider

from weft_api.sessions.oidc import Begun
from weft_core.ids import new_id
from weft_core.oidc_settings import OidcSettings
from weft_core.settings import Settings
from weft_core.store.models import AuditRecord, Identity, Member, Project, User

_OURS = {"X-Weft-Session": "1"}
_PUBLIC = "http://weft.example.test"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    redirects = [f"{_PUBLIC}/signin/{name}" for name in ("acme", "wrong-secret")]
    with identity_provider(tmp_path_factory.mktemp("provider"), *redirects) as running:
        yield running


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    """A second provider, whose ID tokens have no claims but the subject."""
    folder = tmp_path_factory.mktemp("other")
    with identity_provider(folder, f"{_PUBLIC}/signin/other", claims_in="userinfo") as running:
        yield running


@pytest.fixture(scope="module")
def api_settings(api_settings: Settings, provider: IdentityProvider, other: IdentityProvider) -> Settings:
    groups = {
        "ml": {"vision": "editor", "speech": "viewer"},
        "leads": {"vision": "owner"},
        "ghosts": {"no-such-project": "owner"},
    }
    acme = {"issuer": provider.issuer, "client_id": "weft", "client_secret": SECRET, "title": "Acme", "groups": groups}
    providers = {
        "acme": acme,
        "other": acme | {"issuer": other.issuer, "title": ""},
        "wrong-secret": acme | {"client_secret": "another"},
        "misnamed": acme | {"issuer": provider.issuer + "/"},
        "away": acme | {"issuer": "http://127.0.0.1:9"},
    }
    oidc = {name: OidcSettings.model_validate(provider) for name, provider in providers.items()}
    public = api_settings.api.model_copy(update={"public_url": _PUBLIC})
    return api_settings.model_copy(update={"oidc": oidc, "api": public})


@pytest.fixture(scope="module", autouse=True)
def _projects(api: Api) -> None:
    with api.context.database.transaction() as session:
        session.add_all(Project(id=new_id("prj"), name=name) for name in ("vision", "speech"))


def begin(browser: httpx.Client, name: str = "acme") -> str:
    """The URL at the provider."""
    answer = browser.post("/api/v1/session/provider", json={"name": name})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["url"])


def finish(browser: httpx.Client, returned: dict[str, str], name: str = "acme", **changes: Any) -> httpx.Response:
    sent = {"name": name, "code": returned["code"], "state": returned["state"], "issuer": returned.get("iss")} | changes
    return browser.post("/api/v1/session", json={"provider": sent})


def sign_in(api: Api, at: IdentityProvider, login: str, name: str = "acme") -> tuple[httpx.Client, httpx.Response]:
    browser = api.client()
    return browser, finish(browser, at.sign_in(begin(browser, name), login), name)


def roles(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {project["name"]: project["role"] for project in answer.json()["projects"]}


def refused(answer: httpx.Response, status: int = 401) -> str:
    assert answer.status_code == status, answer.text
    assert "weft_session" not in answer.headers.get("set-cookie", "")
    return str(answer.json()["detail"])


def forge(api: Api, browser: httpx.Client, **change: Any) -> None:
    """Change what the browser's cookie holds, with the server's own keys."""
    begun = json.loads(api.context.box.decrypt(browser.cookies["weft_sign_in"].encode()))
    browser.cookies.clear()
    browser.cookies.set("weft_sign_in", Begun(**(begun | change)).seal(api.context.box))


def test_a_group_gives_roles_and_a_session(api: Api, provider: IdentityProvider) -> None:
    provider.account("ada", groups=["ml", "cooks"], preferred_username="ada", email="ada@acme.com", email_verified=True)
    browser, answer = sign_in(api, provider, "ada")
    assert roles(answer) == {"vision": "editor", "speech": "viewer"}
    assert answer.json()["user"] == "ada@acme"
    assert not answer.json()["admin"]
    assert answer.json()["expires_at"], "a session ends"
    assert browser.put("/api/v1/session/project", json={"project": "speech"}, headers=_OURS).status_code == 200
    with api.context.database.transaction() as session:
        user = session.scalars(select(User).where(User.name == "ada@acme")).one()
        assert (user.email, user.password_hash) == ("ada@acme.com", None)
        record = session.scalars(
            select(AuditRecord).where(AuditRecord.user_id == user.id).order_by(AuditRecord.id).limit(1)
        ).one()
        assert (record.actor, record.action, record.user) == ("provider", "sessions.open", "ada@acme")


def test_the_page_shows_the_providers(api: Api) -> None:
    shown = api.client().get("/api/v1/signin").json()["providers"]
    assert {"name": "acme", "title": "Acme"} in shown
    assert {"name": "other", "title": "other"} in shown


def test_the_same_person_comes_back_as_the_same_user(api: Api, provider: IdentityProvider) -> None:
    provider.account("eve", groups=["ml"], preferred_username="eve")
    _, first = sign_in(api, provider, "eve")
    provider.account("eve", groups=["ml"], preferred_username="eve-has-married")
    _, second = sign_in(api, provider, "eve")
    assert first.json()["user"] == second.json()["user"] == "eve@acme"


@pytest.mark.parametrize("groups", [None, [], ["cooks"], ["ghosts"], [7, {"ml": 1}], {"ml": True}])
def test_nobody_comes_in_without_a_mapped_group(api: Api, provider: IdentityProvider, groups: Any) -> None:
    login = new_id("login")
    provider.account(login, preferred_username=login, **({} if groups is None else {"groups": groups}))
    _, answer = sign_in(api, provider, login)
    assert "none of your groups at Acme has a role" in refused(answer, 403)
    with api.context.database.transaction() as session:
        members = session.scalars(select(Member).join(User).where(User.name == f"{login}@acme")).all()
        assert members == []


def test_roles_follow_the_groups_at_the_next_sign_in(api: Api, provider: IdentityProvider) -> None:
    provider.account("joe", groups=["ml", "leads"], preferred_username="joe")
    browser, answer = sign_in(api, provider, "joe")
    assert roles(answer) == {"vision": "owner", "speech": "viewer"}, "the highest role counts"
    browser.put("/api/v1/session/project", json={"project": "speech"}, headers=_OURS)
    in_speech = api.client(browser.post("/api/v1/tokens", json={"name": "ci"}, headers=_OURS).json()["token"])
    assert in_speech.get("/api/v1/me").json()["role"] == "viewer"
    provider.account("joe", groups=["leads"], preferred_username="joe")
    assert roles(sign_in(api, provider, "joe")[1]) == {"vision": "owner"}
    assert in_speech.get("/api/v1/me").status_code == 401, "a token ends with the role"
    provider.account("joe", groups=[], preferred_username="joe")
    refused(sign_in(api, provider, "joe")[1], 403)
    assert browser.get("/api/v1/session").status_code == 401
    provider.account("joe", groups=["ml"], preferred_username="joe")
    assert roles(sign_in(api, provider, "joe")[1]) == {"vision": "editor", "speech": "viewer"}
    assert in_speech.get("/api/v1/me").status_code == 401, "an ended token stays ended"


def test_a_role_that_somebody_has_set_stays(api: Api, provider: IdentityProvider, root: Person) -> None:
    provider.account("kim", groups=["ml"], preferred_username="kim")
    sign_in(api, provider, "kim")
    path = "/api/v1/projects/vision/members"
    by_group = {member["user"]: member["by_group"] for member in root.http.get(path).json()["members"]}
    assert by_group["kim@acme"]
    assert root.http.put(f"{path}/kim@acme", json={"role": "viewer"}).status_code == 200
    assert roles(sign_in(api, provider, "kim")[1]) == {"vision": "viewer", "speech": "viewer"}
    provider.account("kim", groups=[], preferred_username="kim")
    assert roles(sign_in(api, provider, "kim")[1]) == {"vision": "viewer"}


def test_a_disabled_user_stays_disabled(api: Api, provider: IdentityProvider, root: Person) -> None:
    provider.account("max", groups=["ml"], preferred_username="max")
    browser, _ = sign_in(api, provider, "max")
    assert root.http.patch("/api/v1/users/max@acme", json={"disabled": True}).status_code == 200
    assert browser.get("/api/v1/session").status_code == 401
    provider.account("max", groups=["leads"], preferred_username="max")
    assert "disabled" in refused(sign_in(api, provider, "max")[1])


def test_no_claim_but_issuer_and_subject_says_who_it_is(
    api: Api, provider: IdentityProvider, other: IdentityProvider, root: Person
) -> None:
    """Neither a name nor an e-mail address of somebody else opens that user."""
    root.http.post("/api/v1/users", json={"name": "sue", "email": "sue@example.org", "admin": True})
    claims: dict[str, Any] = {"preferred_username": "sue", "email": "sue@example.org", "email_verified": True}
    provider.account("1", groups=["ml"], **claims)
    provider.account("2", groups=["ml"], **claims)
    other.account("1", groups=["ml"], **claims)
    names = [
        sign_in(api, at, login, name)[1].json()["user"]
        for at, login, name in ((provider, "1", "acme"), (provider, "2", "acme"), (other, "1", "other"))
    ]
    assert names == ["sue@acme", "sue-2@acme", "sue@other"]
    with api.context.database.transaction() as session:
        found = session.execute(
            select(Identity.issuer, Identity.subject, User.name).join(User).where(User.name.startswith("sue"))
        ).all()
        assert len({tuple(row[:2]) for row in found}) == 3
        assert {row[2] for row in found} == set(names)


@pytest.mark.parametrize("name", ["Zoë Ångström", "../../etc", "a" * 300, "ann@acme.com", "-", "<b>", ""])
def test_a_name_becomes_one_that_weft_accepts(api: Api, provider: IdentityProvider, root: Person, name: str) -> None:
    login = new_id("login")
    provider.account(login, groups=["ml"], preferred_username=name)
    made = sign_in(api, provider, login)[1].json()["user"]
    assert made.endswith("@acme")
    assert root.http.patch(f"/api/v1/users/{made}", json={"disabled": True}).status_code == 200


def test_claims_may_come_with_the_user_info(api: Api, other: IdentityProvider) -> None:
    other.account("ida", groups=["leads"], preferred_username="ida")
    answer = sign_in(api, other, "ida", "other")[1]
    assert (answer.json()["user"], roles(answer)) == ("ida@other", {"vision": "owner"})


def test_a_user_of_a_provider_sets_no_password(api: Api, provider: IdentityProvider) -> None:
    provider.account("lea", groups=["ml"], preferred_username="lea")
    browser, _ = sign_in(api, provider, "lea")
    answer = browser.patch("/api/v1/users/lea@acme", json={"password": "correct horse battery staple"}, headers=_OURS)
    assert answer.status_code == 403


def test_a_code_signs_in_once_and_in_its_own_browser_only(api: Api, provider: IdentityProvider) -> None:
    provider.account("tom", groups=["ml"], preferred_username="tom")
    browser, stranger = api.client(), api.client()
    returned = provider.sign_in(begin(browser), "tom")
    assert "has begun no such sign-in" in refused(finish(stranger, returned)), "a browser without the cookie"
    begin(stranger)
    assert "has begun no such sign-in" in refused(finish(stranger, returned)), "a browser with another state"
    refused(finish(browser, returned, state="x" * 32))
    refused(finish(browser, returned, name="other"))
    assert finish(browser, returned).status_code == 200
    assert "has begun no such sign-in" in refused(finish(browser, returned)), "the cookie is gone"


def test_the_provider_takes_a_code_only_with_the_verifier(api: Api, provider: IdentityProvider) -> None:
    """With the right state, but another PKCE verifier than the one that the sign-in began with."""
    provider.account("tom", groups=["ml"], preferred_username="tom")
    browser = api.client()
    url = begin(browser)
    assert "code_challenge_method=S256" in url
    returned = provider.sign_in(url, "tom")
    forge(api, browser, verifier="x" * 64)
    assert "does not confirm" in refused(finish(browser, returned))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nonce": "x" * 32}, "does not confirm"),
        ({"until": 1.0}, "took too long"),
    ],
)
def test_the_nonce_and_the_time_count(api: Api, provider: IdentityProvider, change: dict[str, Any], why: str) -> None:
    provider.account("tom", groups=["ml"], preferred_username="tom")
    browser = api.client()
    returned = provider.sign_in(begin(browser), "tom")
    forge(api, browser, **change)
    assert why in refused(finish(browser, returned))


@pytest.mark.parametrize("sealed", ["", "x", "ä", base64.b64encode(b"x" * 100).decode()])
def test_a_cookie_that_weft_has_not_sealed_is_none(api: Api, sealed: str) -> None:
    browser = api.client()
    sent = {"name": "acme", "code": "x", "state": "x"}
    headers = {"Cookie": f"weft_sign_in={sealed}".encode()}
    answer = browser.post("/api/v1/session", json={"provider": sent}, headers=headers)  # type: ignore[arg-type]
    assert "has begun no such sign-in" in refused(answer)


def test_a_code_of_another_issuer_is_refused(api: Api, provider: IdentityProvider) -> None:
    provider.account("tom", groups=["ml"], preferred_username="tom")
    browser = api.client()
    returned = provider.sign_in(begin(browser), "tom")
    refused(finish(browser, returned, issuer="https://evil.example.com"))


def test_a_wrong_client_secret_is_no_way_in(api: Api, provider: IdentityProvider) -> None:
    provider.account("tom", groups=["ml"], preferred_username="tom")
    assert "does not confirm" in refused(sign_in(api, provider, "tom", "wrong-secret")[1])


def test_another_site_begins_and_ends_no_sign_in(api: Api) -> None:
    elsewhere = {"Origin": "https://evil.example.com"}
    browser = api.client()
    begun = browser.post("/api/v1/session/provider", json={"name": "acme"}, headers=elsewhere)
    ended = browser.post(
        "/api/v1/session", json={"provider": {"name": "acme", "code": "x", "state": "x"}}, headers=elsewhere
    )
    assert (code_of(begun), code_of(ended)) == ("cross_site", "cross_site")


def test_the_cookie_of_a_sign_in_is_for_this_page_only(api: Api) -> None:
    answer = api.client().post("/api/v1/session/provider", json={"name": "acme"})
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/api/v1/session", "max-age=900"))


def test_a_provider_that_does_not_answer_is_named_without_details(api: Api) -> None:
    for name in ("away", "misnamed"):
        answer = api.client().post("/api/v1/session/provider", json={"name": name})
        assert (answer.status_code, code_of(answer)) == (503, "provider_unavailable")
        assert "127.0.0.1" not in answer.text
    missing = api.client().post("/api/v1/session/provider", json={"name": "nope"})
    assert missing.status_code == 404
