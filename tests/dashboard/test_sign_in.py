"""Signing in by a link, and the hint of the sign-in page about the place of a token. The API alone serves that page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.api.conftest import Api, Person, api, api_settings
from tests.dashboard.conftest import Site, faults, new_tab, sign_in, visiting

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def site(api: Api, ann: Person) -> Site:
    return Site(api.url, ann.token)


@pytest.fixture(scope="module")
def _browser_here(browser: Browser, api: Api) -> Iterator[BrowserContext]:
    with visiting(browser, Site(api.url, token="")) as context:
        yield context


@pytest.fixture
def stranger(_browser_here: BrowserContext) -> Iterator[BrowserContext]:
    """A browser in which nobody is signed in."""
    yield _browser_here
    _browser_here.clear_cookies()
    for tab in _browser_here.pages[1:]:
        tab.close()


@pytest.fixture
def context(stranger: BrowserContext, site: Site) -> BrowserContext:
    sign_in(stranger, token=site.token)
    return stranger


def link(site: Site) -> str:
    """A fresh one, as `weft login --browser` prints it."""
    headers = {"Authorization": f"Bearer {site.token}"}
    answer = httpx.post(f"{site.url}/api/v1/session/links", headers=headers, timeout=300)
    return site.url + str(answer.raise_for_status().json()["path"])


def requests_of(page: Page) -> list[str]:
    """What the browser asks for, as it does: addresses, headers."""
    seen: list[str] = []
    page.on("request", lambda request: seen.append(f"{request.url} {request.headers}"))
    return seen


def test_a_link_signs_in_once_and_leaves_no_trace(stranger: BrowserContext, site: Site) -> None:
    opened = link(site)
    secret = opened.partition("#")[2]
    page = new_tab(stranger)
    seen = requests_of(page)
    page.goto(opened)
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    assert len(seen) > 3
    assert not [url for url in seen if secret in url], "no address, no referrer"
    page.go_back()
    assert secret not in page.url
    stranger.clear_cookies()
    page = new_tab(stranger)
    page.goto(opened)
    expect(page.get_by_text("this sign-in link was used already")).to_be_visible()
    expect(page.get_by_text("`weft login --browser` prints another")).to_be_visible()
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    expect(page).to_have_url(f"{site.url}/signin")
    # Another link in the same tab: the browser loads no page when only the part behind the # changes.
    page.evaluate("address => { window.location.href = address }", link(site))
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()


def test_who_is_signed_in_is_asked_before_a_link_changes_that(page: Page, api: Api, ann: Person) -> None:
    """Otherwise users could be led to work in a stranger's name by the stranger's link."""
    other = api.person()
    opened = link(Site(api.url, other.token))
    page.goto(opened)
    expect(page.get_by_text(f"You are signed in as {ann.name}.")).to_be_visible()
    assert faults(page) == []
    page.get_by_role("button", name=f"Go on as {ann.name}").click()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(page.get_by_text(ann.name)).to_be_visible()
    page.goto("/models")
    page.goto(opened)
    page.get_by_role("button", name="Sign in by the link instead").click()
    expect(page).to_have_url(f"{api.url}/")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(page.get_by_text(other.name)).to_be_visible()


def test_the_page_names_the_profile_file_of_this_home(
    stranger: BrowserContext, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "/srv/weft/client.toml"
    settings = api.settings.api.model_copy(update={"profile_file": Path(file)})
    monkeypatch.setattr(api.settings, "api", settings)
    page = new_tab(stranger)
    page.goto("/")
    expect(page).to_have_url(re.compile("/signin"))
    expect(page.get_by_text(f"WEFT_PROFILE_FILE={file} weft login --browser")).to_be_visible()
    page.get_by_role("button", name="Use a token instead").click()
    expect(page.get_by_text(f"weft up has put yours into {file}.")).to_be_visible()
    assert faults(page) == []
    monkeypatch.undo()
    page.reload()
    page.get_by_role("button", name="Use a token instead").click()
    expect(page.get_by_text("weft tokens create makes one where you are signed in already.")).to_be_visible()
    expect(page.get_by_text("WEFT_PROFILE_FILE")).not_to_be_visible()
