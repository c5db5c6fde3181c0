"""Cluster, models, data stores, secrets, tokens and administration: what users see, and what they may and may not
do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect
from tests.dashboard.conftest import HOSTILE, Site, Theme, faults, new_tab, sign_in, visiting
from tests.e2e.stack import Stack, manifest

import weft

_PAGES = [
    "/submit",
    "/sweeps",
    "/schedules",
    "/compare",
    "/models",
    "/cluster",
    "/stores",
    "/tokens",
    "/device",
    "/audit",
    "/admin",
]
_THEMES: tuple[Theme, ...] = ("light", "dark")


def test_no_page_has_a_serious_fault_nor_is_wider_than_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in _PAGES:
        page.goto(path)
        expect(page.get_by_role("heading").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        for theme in _THEMES:
            page.emulate_media(color_scheme=theme)
            assert faults(page) == [], f"{path}, {theme}"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_a_page_needs_no_way_to_the_internet(page: Page) -> None:
    """The browser says that it is offline when a machine leaves its network, while Weft runs on that machine."""
    page.goto("/models")
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()
    page.evaluate("dispatchEvent(new Event('offline'))")
    page.get_by_role("link", name="Cluster").click()
    expect(page.get_by_role("region", name="local")).to_contain_text("1 node: 1 ready")


@pytest.mark.parametrize("asset", ["index-.*js", "format-.*js", "index-.*css"])
def test_a_page_whose_parts_do_not_come_is_loaded_again(page: Page, asset: str) -> None:
    """Chromium fails requests that wait for a connection when the network changes; the machine may be far from any."""
    failed: list[str] = []

    def fail_twice(route: Route) -> None:
        if len(failed) == 2:
            return route.continue_()
        failed.append(route.request.url)
        return route.abort("connectionreset")

    page.route(re.compile(f"/assets/{asset}"), fail_twice)
    page.goto("/")
    expect(page.locator("body")).to_have_css("margin", "0px")  # as the style sheet has it
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    assert len(failed) == 2


def test_a_page_that_can_not_be_loaded_says_so(page: Page) -> None:
    page.route(re.compile("/assets/format-"), lambda route: route.abort())
    page.goto("/")
    expect(page.get_by_text("A part of Weft's page can't be loaded")).to_be_visible()


def test_the_cluster_tells_who_waits_and_why(page: Page, stack: Stack) -> None:
    cpus = page.context.request.get("/api/v1/engines").json()["engines"][0]["capacity"]["cpus"]
    jobs = [stack.train(manifest("sleep 600", name=name, cpus=cpus), None) for name in ("holds", HOSTILE)]
    page.goto("/cluster")
    engine = page.get_by_role("region", name="local")
    row = engine.get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text("waiting for", timeout=120_000)
    expect(engine).to_contain_text(f"{cpus:g} of {cpus:g} held by jobs")
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(jobs[1].id))
    for job in jobs:
        job.delete()


def test_a_model_is_promoted_and_deleted(page: Page, viewer: Page, stack: Stack) -> None:
    reports = "from weft_trainer import log_metrics; log_metrics(step=1, accuracy=0.75)"
    command = f"bash -c 'echo trained > $RESULT_DIR/model; python -c \"{reports}\"'"
    job = stack.train(manifest(command, name=HOSTILE), None)
    job.wait(timeout=900)
    stack.client.models.register(job.id, "digits")
    page.goto("/models")
    page.get_by_role("link", name="digits").click()
    expect(page.get_by_role("region", name="Where version 1 comes from")).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Where version 1 comes from")).to_contain_text("0.75")
    page.get_by_role("button", name="Edit the notes").click()
    page.get_by_role("textbox", name="Notes").fill("Best at **night**")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("region", name="Notes").get_by_role("strong")).to_have_text("night")
    page.get_by_role("button", name="Promote version 1").click()
    page.get_by_label("Stage").fill("staging")
    page.get_by_role("button", name="Promote", exact=True).click()
    expect(page.get_by_role("region", name="Promotions")).to_contain_text("staging → 1")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download version 1").click()
    assert download.value.suggested_filename.endswith(".zip")
    viewer.goto("/models/digits")
    expect(viewer.get_by_role("link", name="Download version 1")).to_be_visible()
    expect(viewer.get_by_role("region", name="Notes")).to_contain_text("Best at night")
    expect(viewer.get_by_role("button", name=re.compile("Promote|Delete|Take|Edit"))).to_have_count(0)
    # Refused while a stage points to the version; the API's message is shown.
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("staging")
    assert faults(page) == []
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Take stage staging away").click()
    dialog.get_by_role("button", name="Take away").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No models yet")).to_be_visible()


def test_every_page_goes_on_when_the_api_is_back(context: BrowserContext, running_job: weft.Job) -> None:
    """Opened or left open while it is away. When the session has ended meanwhile, the page leads to signing in."""
    job, jobs = f"/jobs/{running_job.id}", "/"
    tabs: list[tuple[Page, str | None, Locator]] = []
    for start, link, selector in (
        (jobs, "Models", "role=heading[name='Models']"),
        (jobs, "Data and secrets", "role=region[name='Data stores']"),
        (jobs, "Tokens", "role=region[name='Table of tokens']"),
        (jobs, "Administration", "role=article[name='Project default']"),
        (jobs, None, "role=row[name=/completed|processing/i] >> nth=0"),
        (job, "Logs", "role=region[name='Lines of the log']"),
        (job, "Code", "role=region[name='Text of the file']"),
        ("/cluster", None, "role=region[name='local']"),
        ("/tokens", "Cluster", "role=region[name='local']"),
    ):
        page = new_tab(context)
        page.goto(start)
        expect(page.get_by_role("heading").first).to_be_visible()
        if start == job:
            expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
        tabs.append((page, link, page.locator(selector)))
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.abort("connectionrefused")

    # As a browser sees a server that is down: it gets neither data nor code.
    context.route("**/*", refuse)
    for page, link, _ in tabs:
        if link:
            page.get_by_role("link", name=link, exact=True).click()
    for page, _, _ in tabs:
        expect(page.locator(".banner")).to_be_visible()
    assert any(url.endswith(".js") for url in refused)
    context.unroute_all()
    for page, _, shown in tabs:
        expect(shown).to_be_visible(timeout=120_000)
        expect(page.locator(".banner")).to_have_count(0)
    page = tabs[-1][0]
    context.clear_cookies()
    expect(page).to_have_url(re.compile("/signin"))


@pytest.mark.parametrize("asset", ["UseChart-.*js", "Plot-.*css"])
def test_a_part_of_a_page_that_does_not_come_is_asked_for_again(page: Page, running_job: weft.Job, asset: str) -> None:
    """The page is open, and its chart is loaded when there is something to draw."""
    failed: list[str] = []

    def fail_once(route: Route) -> None:
        if failed:
            return route.continue_()
        failed.append(route.request.url)
        return route.abort("connectionreset")

    page.route(re.compile(f"/assets/{asset}"), fail_once)
    page.goto("/cluster")
    over = page.get_by_role("region", name="Use over time").locator(".u-over").first
    expect(over).to_have_css("position", "absolute")  # as the chart's style sheet has it
    assert len(failed) == 1


def test_secrets_and_tokens_are_never_shown_again(page: Page) -> None:
    page.goto("/stores")
    page.get_by_role("button", name="Keep a secret").click()
    page.get_by_label("Name").fill("wandb")
    page.get_by_label("Value").fill("very-secret-value")
    page.get_by_role("button", name="Keep", exact=True).click()
    secrets = page.get_by_role("region", name="Secrets", exact=True)
    expect(secrets.get_by_role("row").filter(has_text="wandb")).to_contain_text("never shown")
    assert "very-secret-value" not in page.content()
    page.get_by_role("button", name="Delete secret wandb").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(secrets).to_contain_text("No secrets")

    page.goto("/tokens")
    page.get_by_role("button", name="Make a token").click()
    page.get_by_label("Name").fill(HOSTILE)
    page.get_by_role("button", name="Make", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Token {HOSTILE}")
    token = dialog.locator("code").inner_text()
    headers = {"Authorization": f"Bearer {token}"}
    assert page.context.request.get("/api/v1/me", headers=headers).ok
    assert faults(page) == []
    dialog.get_by_role("button", name="I have it").click()
    assert token not in page.content()
    page.get_by_role("row").filter(has_text=HOSTILE).get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row").filter(has_text=HOSTILE)).to_have_count(0)


def test_an_administrator_adds_a_viewer_who_is_offered_nothing_that_is_refused(
    page: Page, browser: Browser, site: Site
) -> None:
    page.goto("/admin")
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("vera")
    dialog.get_by_label("Password").fill("vera's password")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="vera")).to_contain_text("none")
    project = page.get_by_role("article", name="Project default")
    project.get_by_role("button", name="Add a member").click()
    page.get_by_role("textbox", name="User").fill("vera")
    page.locator("dialog select").select_option("viewer")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(project.get_by_label("Role of vera in default")).to_have_value("viewer")
    project.get_by_role("button", name="Quota").click()
    page.get_by_label("GPUs").fill("8")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(project).to_contain_text("GPUs 0 of 8")
    expect(project).to_contain_text("Guaranteed nothing")
    project.get_by_role("button", name="Share").click()
    page.get_by_label("Guaranteed GPUs").fill("4")
    page.get_by_label("May hold more").select_option("no")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(project).to_contain_text("Guaranteed 4 GPUs and no more")
    assert faults(page) == []

    with visiting(browser, site) as context:
        sign_in(context, user="vera", password="vera's password")
        hers = new_tab(context)
        hers.goto("/stores")
        expect(hers.get_by_role("heading", name="Data stores")).to_be_visible()
        expect(hers.get_by_role("row").filter(has_text="default")).to_be_visible()
        expect(hers.get_by_role("button", name=re.compile("Add a data store|Keep a secret|Forget"))).to_have_count(0)
        pages = hers.get_by_role("navigation", name="Pages")
        expect(pages.get_by_role("link", name="Tokens")).to_be_visible()
        expect(pages.get_by_role("link", name=re.compile("Submit|Audit|Administration"))).to_have_count(0)
        hers.goto("/submit")
        expect(hers.get_by_role("heading", name="Viewers submit no jobs")).to_be_visible()
        hers.goto("/admin")
        expect(hers.get_by_role("heading", name="For administrators only")).to_be_visible()


def test_the_audit_page_shows_who_did_what(page: Page, viewer: Page, stack: Stack) -> None:
    job = stack.train(manifest("sleep 600", name="watched"), None)
    job.halt()
    page.goto("/audit")
    page.get_by_label("Object").fill(job.id)
    page.get_by_role("button", name="Filter").click()
    rows = page.get_by_role("region", name="Table of records").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("jobs.halt")
    expect(rows.nth(2)).to_contain_text("jobs.submit")
    page.get_by_label("Outcome").select_option("refused")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("heading", name="No record fits these filters")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page).to_have_url(re.compile("/audit$"))
    assert faults(page) == []
    page.goto(f"/jobs/{job.id}/events")
    expect(page.get_by_text("halt requested by admin")).to_be_visible()
    viewer.goto("/audit")
    expect(viewer.get_by_role("heading", name="For administrators and owners only")).to_be_visible()
    job.delete()
