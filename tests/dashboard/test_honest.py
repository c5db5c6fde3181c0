"""Pages that say what they know: failures with their lines, what is pending, what is old; and the list of many jobs.
The API alone serves them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Route, expect
from tests.api.conftest import Api, Person, api
from tests.api.conftest import api_settings as settings_of_api
from tests.dashboard.conftest import Site, faults, sign_in, visiting
from tests.dashboard.realistic import Team, fill
from tests.e2e.stack import eventually

from weft_core.engine_settings import KubernetesSettings, LocalSettings
from weft_core.settings import Settings

__all__ = ["api", "settings_of_api"]  # fixtures

_ROWS = 25


@pytest.fixture(scope="module")
def api_settings(settings_of_api: Settings) -> Settings:
    return settings_of_api.model_copy(update={"engines": {"local": LocalSettings(), "gpu": KubernetesSettings()}})


@pytest.fixture(scope="module")
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture(scope="module")
def team(api: Api, ann: Person) -> Team:
    return fill(api, ann, jobs=_ROWS + 2, lines=30)


@pytest.fixture(scope="module")
def _browser_of_ann(browser: Browser, api: Api, ann: Person, team: Team) -> Iterator[BrowserContext]:
    with visiting(browser, Site(api.url, ann.token)) as made:
        yield made


@pytest.fixture
def context(_browser_of_ann: BrowserContext, ann: Person) -> Iterator[BrowserContext]:
    sign_in(_browser_of_ann, token=ann.token)
    yield _browser_of_ann
    _browser_of_ann.unroute_all()
    for tab in _browser_of_ann.pages[1:]:
        tab.close()


def _never(route: Route) -> None:
    """As a server that was stopped: it takes the request, and that is all."""


def test_a_failed_job_shows_its_exception_first_and_its_lines_once(page: Page, team: Team) -> None:
    page.goto(f"/jobs/{team.failed}")
    failure = page.get_by_role("region", name=re.compile("torch.OutOfMemoryError: CUDA out of memory"))
    expect(failure.get_by_role("heading")).to_contain_text("1.31 GiB is free.")
    expect(failure).to_contain_text("learner 1: exit code 1")
    expect(failure).to_contain_text("What to do. The GPU's memory was not enough.")
    lines = failure.get_by_role("region", name="Its last lines")
    assert lines.inner_text().splitlines()[1:3] == [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 211, in <module>',
    ]
    expect(lines.locator(".a-bold.a-magenta")).to_have_text("torch.OutOfMemoryError")
    expect(page.get_by_text("Traceback (most recent call last):")).to_have_count(1)
    assert "\u241b" not in page.locator("body").inner_text()
    attempts = page.locator(".timeline > li")
    for n in range(3):
        expect(attempts.nth(n)).to_contain_text("FAILED")
    expect(page.locator(".facts")).to_contain_text("2 of 2 used")
    colour = "element => getComputedStyle(element).backgroundColor"
    good = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--good')")
    probe = f"() => {{ const d = document.createElement('i'); d.style.color = '{good}'; document.body.append(d);"
    storing = page.locator(".segment-storing").first.evaluate(colour)
    assert storing != page.evaluate(probe + " return getComputedStyle(d).color }")
    assert faults(page) == []
    failure.get_by_role("link", name=re.compile("To line .* of the log")).click()
    expect(page.locator(".log-line.target")).to_contain_text("torch.OutOfMemoryError")


def test_retries_that_there_are_not_are_not_counted(page: Page, api: Api, ann: Person) -> None:
    job = ann.submit(set={"engine": "local"})["id"]
    api.attempt(job)
    for state in ("PENDING", "PROCESSING"):
        api.set_state(job, state)
    with api.context.database.transaction() as session:
        session.connection().exec_driver_sql("update jobs set failures = 1 where id = %s", (job,))
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("region", name="About")).to_contain_text(re.compile("Retries\\s*none"))


def test_what_is_on_its_way_is_not_said_to_be_missing(page: Page, team: Team) -> None:
    held = [re.compile("/events[?]after="), re.compile("/logs[?]"), re.compile("/checkpoints")]
    for url in held:
        page.route(url, _never)
    page.goto(f"/jobs/{team.failed}")
    expect(page.get_by_role("region", name="About")).to_be_visible()
    for name in ("Time line", "Latest events", "Checkpoints"):
        region = page.get_by_role("region", name=name, exact=True)
        expect(region.get_by_role("status", name="Loading")).to_be_visible()
        expect(region).not_to_contain_text(re.compile("No events|None"))
    page.get_by_role("link", name="Logs", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="loading …")).to_be_visible()
    expect(page.get_by_text("0 lines")).to_have_count(0)
    page.get_by_role("link", name="Events", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="loading …")).to_be_visible()


def test_a_page_of_a_job_asks_for_all_at_once_and_cuts_nothing_off(page: Page, team: Team) -> None:
    held: list[Route] = []
    failed: list[str] = []

    def fail(request: Request) -> None:
        failed.append(f"{request.url}: {request.failure}")

    page.on("requestfailed", fail)
    released = False

    def hold(route: Route) -> None:
        if released:
            return route.continue_()
        held.append(route)

    page.route(re.compile(f"/api/v1/jobs/{team.failed}$"), hold)
    with page.expect_request(re.compile("/checkpoints$")), page.expect_request(re.compile("/events[?]after=0")):
        page.goto(f"/jobs/{team.failed}")
    released = True
    for route in held:
        route.continue_()
    expect(page.get_by_role("region", name="Latest events")).to_contain_text("All 14 events")
    expect(page.get_by_role("region", name="Time line")).to_contain_text("Attempt 3")
    assert failed == []


def test_a_stream_that_is_silent_says_how_old_it_is_and_connects_again(page: Page, team: Team) -> None:
    page.clock.install()
    page.goto(f"/jobs/{team.running}/events")
    note = page.get_by_role("status").filter(has_text="event")
    expect(note).to_contain_text("live")
    events = re.compile("/events[?]after=[1-9]")
    page.route(re.compile("/events[?]after="), _never)
    with page.expect_request(re.compile("/events[?]after=")):
        page.clock.fast_forward(25_000)
        expect(note).to_contain_text(re.compile(r"last update \d+ s ago, connecting again"))
        page.clock.fast_forward(3_000)
    page.unroute_all()
    with page.expect_request(events):
        page.clock.fast_forward(31_000)
        page.clock.fast_forward(5_000)
    expect(note).to_contain_text("live")


def test_a_request_without_an_answer_is_given_up(page: Page, team: Team) -> None:
    page.clock.install()
    page.goto("/")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    page.route(re.compile("/readyz"), lambda route: route.abort())
    page.route(re.compile("/api/v1/jobs[?]"), _never)
    with page.expect_request(re.compile("/api/v1/jobs[?]")):
        page.clock.fast_forward(4_000)
    page.clock.fast_forward(31_000)
    expect(page.locator(".banner")).to_be_visible()
    page.unroute_all()
    page.clock.fast_forward(3_000)
    expect(page.locator(".banner")).to_have_count(0)


def test_an_unknown_address_keeps_the_menu(page: Page) -> None:
    page.goto("/nowhere/at/all")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Models").click()
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()


def test_an_old_error_of_signing_in_goes(page: Page, context: BrowserContext) -> None:
    context.clear_cookies()
    page.goto("/signin")
    page.get_by_label("User").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Password").fill("another")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("button", name="Use a token instead").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def _shown_at(page: Page, chart: Locator, place: float) -> str:
    """What the chart shows with the mouse at this share of its width, and the value in its legend."""
    box = chart.locator(".u-over").bounding_box()
    assert box
    for down in (20, 30):  # the chart looks where the mouse is when the mouse moves
        page.mouse.move(box["x"] + box["width"] * place, box["y"] + down)
    return f"{chart.locator('.plot-x').inner_text()}: {chart.locator('.plot-value').inner_text()}"


def _shows(page: Page, chart: Locator, place: float, text: str) -> bool:
    return _shown_at(page, chart, place) == text


def test_a_point_is_smoothed_alike_whatever_is_zoomed_to(page: Page, team: Team) -> None:
    address = f"/jobs/{team.running}/metrics?smooth=90&q=throughput&learner=1"
    chart = page.get_by_role("region", name="throughput", exact=True)
    page.goto(address)
    expect(chart.get_by_role("listitem")).to_have_count(1)
    whole = _shown_at(page, chart, 2200 / 4760)
    assert whole.startswith("step 2200: 0.")
    for begin, end in ((2000, 2400), (1900, 2800)):
        page.goto(f"{address}&from={begin}&to={end}")
        expect(chart.get_by_role("listitem")).to_have_count(1)
        place = (2200 - begin) / (end - begin)
        # What came before the range comes after it.
        eventually(partial(_shows, page, chart, place, whole), f"{whole} from {begin} to {end}", 60)


def test_the_times_of_an_axis_are_in_24_hours_and_do_not_overlap(page: Page, team: Team) -> None:
    page.add_init_script(
        """window.marks = []; const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            window.marks.push([text, x, y, this.measureText(text).width, this.textAlign]);
            return draw.apply(this, arguments);
        };
        const clear = CanvasRenderingContext2D.prototype.clearRect; // before each drawing
        CanvasRenderingContext2D.prototype.clearRect = function () {
            window.marks = []; return clear.apply(this, arguments);
        }"""
    )
    for axis, looks in (("time", r"\d\d:\d\d(:\d\d)?"), ("elapsed", r"[\d.]+ [hms].*")):
        page.goto(f"/jobs/{team.running}/metrics?x={axis}&q=throughput")
        expect(page.get_by_role("region", name="throughput", exact=True).get_by_role("listitem")).to_have_count(2)
        marks = page.evaluate("window.marks.filter(mark => mark[4] === 'center')")
        rows: dict[float, dict[float, tuple[str, float]]] = {}
        for text, x, y, width, _ in marks:
            rows.setdefault(y, {})[x] = (text, width)
        assert any(re.fullmatch(looks, text) for row in rows.values() for text, _ in row.values()), marks
        assert not [text for row in rows.values() for text, _ in row.values() if re.search("[ap]m$", text)]
        for row in rows.values():
            for (x, (text, width)), (after, (other, its)) in pairwise(sorted(row.items())):
                assert x + width / 2 < after - its / 2, f"{text!r} runs into {other!r}"


def test_training_and_validation_share_a_chart(page: Page, team: Team) -> None:
    page.goto(f"/jobs/{team.compared[0]}/metrics")
    chart = page.get_by_role("region", name="loss", exact=True)
    expect(chart.get_by_role("listitem")).to_have_text([re.compile("train"), re.compile("val")])
    expect(chart).to_contain_text(re.compile(r"min 0\.\d+"))
    page.goto(f"/jobs/{team.running}/metrics")
    group = page.locator("details.chart-group").filter(has_text="layers")
    expect(group.get_by_role("region")).to_have_count(12)
    group.locator("summary").click()
    expect(group.get_by_role("region").first).not_to_be_visible()


def test_the_list_has_a_line_for_each_job(page: Page, team: Team) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/")
    rows = page.locator(".jobs tbody tr")
    expect(rows.nth(_ROWS - 1)).to_be_in_viewport(ratio=1)
    row = rows.filter(has_text=team.compared[0])
    expect(row.locator(".why")).to_have_text("")
    expect(row.get_by_role("button")).to_have_count(3)
    row.get_by_role("button", name="2 more labels").click()
    expect(row.get_by_role("button")).to_have_count(4)
    expect(rows.filter(has_text=team.running).locator(".middle-end")).to_have_text("up300-seed1337")
    assert faults(page) == []


def test_selecting_moves_no_row_and_back_undoes_a_filter(page: Page, team: Team) -> None:
    page.goto("/")
    row = page.locator(".jobs tbody tr").nth(3)
    before = row.bounding_box()
    row.get_by_role("checkbox").check()
    selected = page.get_by_role("region", name="Selected jobs")
    expect(selected).to_be_in_viewport()
    assert row.bounding_box() == before
    for action in ("Halt", "Resume", "Rerun", "Delete"):
        expect(selected.get_by_role("button", name=action)).to_be_visible()
    selected.get_by_role("button", name="Clear").click()
    states = page.get_by_role("group", name="States")
    states.get_by_role("button", name="Waiting").click()
    expect(page).to_have_url(re.compile("state=QUEUED&state=PENDING"))
    expect(page.locator(".jobs .state").filter(has_text=re.compile("QUEUED|PENDING"))).to_have_count(5)
    page.get_by_role("combobox", name="Engine").select_option("gpu")
    expect(page).to_have_url(re.compile("engine=gpu"))
    page.go_back()
    expect(page).not_to_have_url(re.compile("engine"))
    page.go_back()
    expect(states.get_by_role("button", name="All")).to_have_attribute("aria-pressed", "true")
    page.goto("/?col=param%3Alr&col=gpu-hours&state=COMPLETED")
    expect(page.locator(".jobs tbody tr").first).to_contain_text(re.compile(r"\de-[345]"))
    assert faults(page) == []
