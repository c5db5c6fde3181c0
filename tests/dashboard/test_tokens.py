"""The page of tokens: tokens that may do less than their users, and service accounts. The API alone serves it."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect
from tests.api.conftest import Api, Person, api, api_settings
from tests.dashboard.api_alone import ann, context
from tests.dashboard.conftest import Site, faults, sign_in, visiting

__all__ = ["ann", "api", "api_settings", "context"]  # fixtures


def made_token(page: Page) -> str:
    """What the page shows of a new token, this once."""
    dialog = page.get_by_role("dialog")
    token = dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="I have it").click()
    return token


def test_a_token_may_be_made_to_read_only(page: Page, api: Api) -> None:
    page.goto("/tokens")
    page.get_by_role("button", name="Make a token …").click()
    page.get_by_label("Name").fill("looks")
    page.get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Make", exact=True).click()
    token = made_token(page)
    assert api.client(token).get("/api/v1/me").json()["role"] == "viewer"
    expect(page.get_by_role("row").filter(has_text="looks")).to_contain_text("token, viewer")
    revoke = page.get_by_role("button", name="Revoke looks")
    expect(revoke).to_be_in_viewport()


def test_an_owner_keeps_service_accounts(page: Page, api: Api, ann: Person) -> None:
    page.goto("/tokens")
    page.get_by_role("button", name="Add a service account …").click()
    page.get_by_label("Name").fill("ci")
    page.get_by_label("Role").select_option("editor")
    page.get_by_role("button", name="Add", exact=True).click()
    row = page.get_by_role("region", name="Table of service accounts").get_by_role("row").filter(has_text="service:ci@")
    expect(row).to_be_visible()
    page.get_by_role("button", name="Make a token of ci").click()
    page.get_by_role("button", name="Make", exact=True).click()
    machine = api.client(made_token(page))
    assert machine.get("/api/v1/me").json() == {
        "user": f"service:ci@{ann.project}",
        "project": ann.project,
        "role": "editor",
        "budget": None,
    }
    expect(row.get_by_role("cell").nth(3)).to_have_text("1")
    assert faults(page) == []
    page.get_by_role("button", name="Delete ci").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No service accounts")).to_be_visible()
    assert machine.get("/api/v1/me").status_code == 401


def test_viewers_see_no_controls_of_service_accounts(browser: Browser, api: Api, ann: Person) -> None:
    ann.http.post("/api/v1/service-accounts", json={"name": "ci", "role": "editor"}).raise_for_status()
    viewer = api.person("viewer", ann.project_id)
    with visiting(browser, Site(api.url, viewer.token)) as made:
        sign_in(made, token=viewer.token)
        page = made.new_page()
        page.goto("/tokens")
        expect(page.get_by_text(f"service:ci@{ann.project}")).to_be_visible()
        expect(page.get_by_role("button", name="Add a service account …")).to_have_count(0)
        expect(page.get_by_role("button", name="Delete ci")).to_have_count(0)
