"""Signing in at an identity provider in a browser, and a program by its code. The provider is another site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.api.conftest import Api, Person, api, api_settings
from tests.dashboard.conftest import INSECURE, Site, faults, new_tab, visiting
from tests.identity_provider import SECRET, IdentityProvider, identity_provider

from weft_core.ids import new_id
from weft_core.oidc_settings import OidcSettings
from weft_core.store.models import Project

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture(scope="module")
def url(api: Api) -> str:
    """The API's, by a name of another site than the provider's."""
    return f"http://{INSECURE}:{urlsplit(api.url).port}"


@pytest.fixture(scope="module", autouse=True)
def provider(api: Api, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with identity_provider(tmp_path_factory.mktemp("provider"), f"{url}/signin/acme") as running:
        api.settings.api.public_url = url
        api.settings.oidc["acme"] = OidcSettings.model_validate(
            {
                "issuer": running.issuer,
                "client_id": "weft",
                "client_secret": SECRET,
                "title": "Acme",
                "groups": {"ml": {"vision": "editor", "speech": "viewer"}},
            }
        )
        with api.context.database.transaction() as session:
            session.add_all(Project(id=new_id("prj"), name=name) for name in ("vision", "speech"))
        yield running


@pytest.fixture
def stranger(browser: Browser, url: str) -> Iterator[BrowserContext]:
    with visiting(browser, Site(url, token="")) as context:
        yield context


@pytest.fixture
def page(stranger: BrowserContext) -> Page:
    return new_tab(stranger)


def at_provider(page: Page, login: str) -> None:
    """Sign in at the provider, and consent."""
    page.locator("input[name=login]").fill(login)
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("input[name=prompt][value=consent]").wait_for(state="attached")
    page.locator("button[type=submit]").click()


def test_a_person_of_a_provider_comes_in_and_goes_on(page: Page, url: str, provider: IdentityProvider) -> None:
    provider.account("ada", groups=["ml"], preferred_username="ada")
    page.goto("/models?q=digits")
    expect(page).to_have_url(re.compile("/signin"))
    button = page.get_by_role("button", name="Sign in with Acme")
    expect(button).to_be_visible()
    assert faults(page) == []
    button.click()
    at_provider(page, "ada")
    expect(page).to_have_url(f"{url}/models?q=digits")
    expect(page.get_by_text("ada@acme")).to_be_visible()
    page.go_back()
    assert "code=" not in page.url


def test_a_person_without_a_group_is_told_so(page: Page, provider: IdentityProvider) -> None:
    provider.account("eve", groups=["cooks"], preferred_username="eve")
    page.goto("/signin")
    page.get_by_role("button", name="Sign in with Acme").click()
    at_provider(page, "eve")
    expect(page.get_by_text("none of your groups at Acme has a role in a project here")).to_be_visible()
    assert faults(page) == []
    page.get_by_role("link", name="Back to the sign-in").click()
    expect(page.get_by_role("button", name="Sign in with Acme")).to_be_visible()


def test_a_link_that_somebody_made_shows_none_of_its_text(page: Page) -> None:
    page.goto("/signin/acme?error=call_us&error_description=Call+0800+and+tell+your+password")
    expect(page.get_by_text("could not sign you in (call_us)")).to_be_visible()
    expect(page.get_by_text("0800")).not_to_be_visible()
    page.goto("/signin/acme?code=x&state=y")
    expect(page.get_by_text("this browser has begun no such sign-in")).to_be_visible()


def test_the_command_is_signed_in_by_its_code(
    page: Page, api: Api, url: str, provider: IdentityProvider, tmp_path: Path
) -> None:
    """`weft login --sso`, from the first page to the profile file."""
    provider.account("joe", groups=["ml"], preferred_username="joe")
    file = tmp_path / "profile.toml"
    environment = {**os.environ, "WEFT_PROFILE_FILE": str(file), "WEFT_TOKEN": "", "WEFT_URL": ""}
    command = [str(Path(sys.executable).with_name("weft")), "login", api.url, "--sso"]
    login = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert login.stdout is not None
        link = login.stdout.readline().strip()
        code = link.partition("code=")[2]
        page.goto(link.replace(api.url, url))
        page.get_by_role("button", name="Sign in with Acme").click()
        at_provider(page, "joe")
        expect(page.get_by_role("heading", name="Sign in a program")).to_be_visible()
        expect(page.get_by_text(code)).to_be_visible()
        expect(page.get_by_text("127.0.0.1")).to_be_visible()
        page.get_by_role("main").get_by_label("Project").select_option("vision")
        assert faults(page) == []
        page.get_by_role("button", name="Sign it in").click()
        expect(page.get_by_text("The program is signed in.")).to_be_visible()
        _, shown = login.communicate(timeout=120)
        assert login.returncode == 0, shown
    finally:
        login.kill()
        login.communicate()
    assert "joe@acme" in shown
    assert "project vision (editor)" in " ".join(shown.split())
    assert "weft_u_" in file.read_text()


def test_a_code_is_typed_and_refused(page: Page, api: Api) -> None:
    ann: Person = api.person()
    link = ann.http.post("/api/v1/session/links").json()["path"]
    page.goto(link)
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    begun = httpx.post(f"{api.url}/api/v1/device", json={"client": "<b>tool</b>"}, timeout=300).json()
    page.goto("/device")
    page.get_by_label("Code").fill("BBBB-BBBB")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("no program waits under this code")).to_be_visible()
    page.get_by_label("Code").fill(begun["user_code"].lower())
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("<b>tool</b>")).to_be_visible()
    page.get_by_role("button", name="Refuse").click()
    expect(page.get_by_text("The program is not signed in.")).to_be_visible()
    answer = httpx.post(f"{api.url}/api/v1/device:token", json={"device_code": begun["device_code"]}, timeout=300)
    assert answer.json()["code"] == "access_denied"
