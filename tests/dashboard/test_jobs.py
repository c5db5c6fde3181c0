"""Signing in, the list of jobs, and a job's page while it runs and after."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import BrowserContext, Page, Route, ViewportSize, expect
from tests.dashboard.conftest import HOSTILE, Site, faults, is_drawn
from tests.e2e.stack import Stack, manifest

import weft
from weft.errors import JobFailed

_PHONE: ViewportSize = {"width": 360, "height": 800}
_DESKTOP: ViewportSize = {"width": 1280, "height": 800}

# Tests of one job's life, in this order: it runs in the first ones, and the last ones look at what it left.


def _await_line(job: weft.Job, n: int) -> None:
    next(line for line in job.follow_logs(start=n) if isinstance(line, weft.LogLine))


def test_signing_in_leads_back_to_where_one_was(
    page: Page, context: BrowserContext, site: Site, running_job: weft.Job
) -> None:
    context.clear_cookies()
    page.goto(f"/jobs/{running_job.id}/logs?line=1")
    expect(page).to_have_url(re.compile("/signin"))
    assert faults(page) == []
    page.get_by_text("Use a token instead").click()
    page.get_by_label("Token").fill("weft_u_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown")
    page.get_by_label("Token").fill(site.token)
    expect(page.get_by_role("alert")).to_have_count(0)  # it was about another token
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(rf"/jobs/{running_job.id}/logs\?line=1"))
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/signin"))
    assert context.request.get("/api/v1/session").status == 401


def test_the_list_is_live_and_its_filters_are_in_the_url(page: Page, stack: Stack, running_job: weft.Job) -> None:
    page.goto("/?state=COMPLETED&q=nothing-like-this")
    expect(page.get_by_role("heading", name="No job fits these filters")).to_be_visible()
    page.get_by_role("button", name="Show all jobs").click()
    row = page.get_by_role("row").filter(has_text=running_job.id)
    expect(row).to_contain_text("PROCESSING", timeout=240_000)
    expect(row).to_contain_text(HOSTILE)
    # One that can't run appears by itself.
    other = stack.train(manifest("true", name="too-large", cpus=1000), None)
    expect(page.get_by_role("row").filter(has_text=other.id)).to_contain_text("never fit")
    page.get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile(r"\?state=FAILED"))
    expect(row).to_have_count(0)
    page.go_back()
    expect(row).to_be_visible()
    row.get_by_role("button", name=f"team={HOSTILE}").click()
    expect(page).to_have_url(re.compile("label=team"))
    expect(page.get_by_role("row")).to_have_count(2)
    page.reload()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("User filter").fill("nobody")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No job fits these filters")).to_be_visible()
    page.get_by_role("button", name="Remove the filter user nobody").click()
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Metric filter").fill("loss<x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("metric")


def test_the_list_by_keys_and_several_at_once(page: Page, stack: Stack, running_job: weft.Job) -> None:
    # As many CPUs as there are: they wait while the other job runs.
    cpus = page.context.request.get("/api/v1/engines").json()["engines"][0]["capacity"]["cpus"]
    doomed = [stack.train(manifest("true", name=f"doomed-{n}", cpus=cpus), None) for n in (1, 2)]
    page.goto("/")
    expect(page.get_by_role("row").filter(has_text=running_job.id)).to_contain_text("PROCESSING", timeout=240_000)
    expect(page.get_by_role("row").filter(has_text=doomed[1].id)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("doomed")
    expect(page).to_have_url(re.compile("q=doomed"))
    expect(page.get_by_role("row")).to_have_count(3)
    page.keyboard.press("Tab")
    page.locator("h1").click()
    for key in "jxjx":
        page.keyboard.press(key)
    selected = page.get_by_role("region", name="Selected jobs")
    expect(selected).to_contain_text("2 jobs selected")
    table = page.locator(".jobs").bounding_box()
    assert table is not None
    assert table["y"] < 150  # the selection has not moved it
    selected.get_by_role("button", name="Halt").click()
    expect(page.get_by_role("dialog")).to_contain_text(doomed[0].id)
    page.get_by_role("dialog").get_by_role("button", name="Halt").click()
    expect(page.locator(".jobs .state").filter(has_text="HALTED")).to_have_count(2, timeout=120_000)
    for job in doomed:
        page.get_by_role("row").filter(has_text=job.id).get_by_role("checkbox").check()
    selected.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No job fits these filters")).to_be_visible()
    page.goto(f"/jobs/{doomed[0].id}")
    expect(page.get_by_role("heading", name="There is no such job")).to_be_visible()


def test_a_url_leads_to_a_job_of_another_project(page: Page, running_job: weft.Job) -> None:
    answer = page.context.request.post(
        "/api/v1/projects",
        data={"name": "elsewhere", "allow_untrusted": True},  # on a machine that allows no sandbox, too
        headers={"X-Weft-Session": "1", "Idempotency-Key": "elsewhere"},
    )
    assert answer.ok, answer.text()
    page.goto("/")
    page.get_by_label("Project").select_option("elsewhere")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    page.goto(f"/jobs/{running_job.id}/events")
    expect(page.get_by_role("heading", name="There is no such job")).to_be_visible()
    page.get_by_role("button", name="Look in default").click()
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.get_by_role("region", name="Events")).to_contain_text("submitted")


def test_a_viewer_is_offered_nothing_that_is_refused(viewer: Page, running_job: weft.Job) -> None:
    viewer.goto("/")
    row = viewer.get_by_role("row").filter(has_text=running_job.id)
    row.get_by_role("checkbox").check()
    selected = viewer.get_by_role("region", name="Selected jobs")
    expect(selected.get_by_role("button")).to_have_text(["Compare", "Clear the selection"])
    row.get_by_role("link").first.click()
    expect(viewer.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(viewer.locator(".page-head .state")).to_be_visible()
    changes = re.compile("Halt|Resume|Rerun|Delete")
    expect(viewer.get_by_role("button", name=changes).or_(viewer.get_by_role("link", name=changes))).to_have_count(0)


def test_who_follows_too_slowly_is_led_to_the_lines_left_out(page: Page, running_job: weft.Job) -> None:
    left_out: list[int] = []

    def behind(route: Route) -> None:
        """As the API answers a slow client: with the numbers of the lines left out, once, and no lines."""
        if left_out:
            return route.abort()
        first = int(re.findall(r"from=(\d+)", route.request.url)[0])
        left_out.extend((first, first + 19))
        gap = json.dumps({"from": first, "to": first + 19, "lines": 20})
        route.fulfill(content_type="text/event-stream", body=f"id: {first + 19}\nevent: gap\ndata: {gap}\n\n")

    page.route(re.compile("/logs/follow"), behind)
    page.goto(f"/jobs/{running_job.id}/logs")
    log = page.get_by_role("region", name="Lines of the log")
    gap = log.locator(".log-gap")
    expect(gap).to_contain_text("20 lines came faster than they could be shown")
    first, last = left_out
    _await_line(running_job, last + 1)
    gap.get_by_role("button", name="Read them").click()
    expect(log.locator(".log-line.target .log-number")).to_have_text(str(first))
    expect(gap).to_have_count(0)
    expect(log.get_by_role("link", name=str(first + 1), exact=True)).to_be_visible()


def test_a_log_is_followed_to_its_end_and_searched(page: Page, running_job: weft.Job, release: Path) -> None:
    _await_line(running_job, 20)
    page.goto(f"/jobs/{running_job.id}/logs")
    log = page.get_by_role("region", name="Lines of the log")
    seen = log.locator(".log-line").last.inner_text()
    expect(log.locator(".log-line").last).not_to_have_text(seen)  # it goes on by itself
    release.touch()
    expect(log).to_contain_text("all done")
    expect(page.locator(".page-head .state")).to_have_text("COMPLETED", timeout=120_000)
    page.locator("h1").click()
    for key in "gg":
        page.keyboard.press(key)
    # Markup appears as text, colours as colours, and a progress bar as a terminal shows it.
    expect(log.locator(".a-bold.a-red")).to_have_text("careful")
    expect(log).to_contain_text("<script>window.broken = 1</script>")
    expect(log.locator("img, script, .log-text a")).to_have_count(0)
    expect(log).to_contain_text("loading 100 %")
    expect(log).not_to_contain_text("loading 10 %")
    page.get_by_role("searchbox", name="Search").fill(r"step 0000[37]\b")
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_text("2 hits")).to_be_visible()
    page.get_by_role("button", name="Next hit").click()
    expect(page.get_by_text("1 of 2 hits")).to_be_visible()
    page.get_by_role("button", name="Next hit").click()
    expect(page).to_have_url(re.compile(r"line=\d+"))
    target = log.locator(".log-line.target")
    expect(target).to_contain_text("step 00007")
    expect(target.locator("mark")).to_have_text("step 00007")
    # The address of a line leads others to it.
    page.goto(page.url)
    expect(target).to_be_in_viewport()
    page.goto(f"/jobs/{running_job.id}/logs?q=(&regex=true")
    expect(page.get_by_role("alert")).to_contain_text("q")


def test_the_page_of_a_job_that_has_ended(page: Page, running_job: weft.Job) -> None:
    running_job.wait(timeout=900)
    page.goto(f"/jobs/{running_job.id}")
    expect(page.locator(".timeline")).to_contain_text("PROCESSING")
    expect(page.get_by_role("region", name="Latest events")).to_contain_text("completed")
    expect(page.get_by_role("region", name="The newest lines")).to_contain_text("all done")
    expect(page.get_by_role("region", name="Used")).to_contain_text(re.compile(r"Memory.*at most"))
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("link", name="<img src=x onerror=window.broken=1>.txt").click()
    expect(page.locator(".code-text")).to_have_text("<script>window.broken = 1</script>\n")
    page.get_by_role("link", name="page.html").click()
    expect(page.locator(".code-text")).to_contain_text("<script>")
    page.get_by_role("link", name="curve.png").click()
    picture = page.get_by_role("img", name="curve.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 240
    page.get_by_role("link", name="System").click()
    for name in ("CPU (100 % = one core)", "Memory", "Network", "Disk"):
        chart = page.get_by_role("region", name=name, exact=True)
        chart.scroll_into_view_if_needed()
        expect(chart.get_by_role("listitem").first).to_contain_text(re.compile(r"\d"))
        is_drawn(chart)
    page.get_by_role("link", name="Code", exact=True).click()
    expect(page.locator(".code-text")).to_contain_text("team:")
    page.get_by_role("link", name="noisy.py").click()
    expect(page.locator(".code-text .hljs-keyword").first).to_be_visible()


def test_a_failed_job_shows_its_exception_first(page: Page, stack: Stack) -> None:
    """In colours, once, with a link to its line; and the job is not read again for each of its events."""
    program = 'print(1)\ntry:\n    1 / 0\nexcept Exception:\n    raise ValueError("\\x1b[31mred\\x1b[0m words")'
    job = stack.train(manifest(f"python -c '{program}'", retries=1), None)
    with pytest.raises(JobFailed):
        job.wait(timeout=900)
    reads: list[str] = []
    page.on("request", lambda request: reads.append(request.url) if request.url.endswith(f"/jobs/{job.id}") else None)
    page.goto(f"/jobs/{job.id}")
    failure = page.get_by_role("region", name="ValueError")
    expect(failure.get_by_role("heading")).to_have_text("ValueError: red words")
    expect(failure.locator("pre .a-red")).to_have_text("red")
    expect(failure.locator("pre")).to_contain_text("ZeroDivisionError")
    expect(page.locator(".timeline .tone-bad")).to_have_text(["FAILED", "FAILED"])  # of both attempts
    expect(page.get_by_role("region", name="About")).to_contain_text("1 of 1 used")
    expect(page.get_by_text("Traceback")).to_have_count(2)  # of the exception and of its cause, and not once more
    assert len([url for url in reads if "/api/" in url]) <= 3
    assert faults(page) == []
    failure.get_by_role("link", name="of the log").click()
    expect(page.locator(".log-line.target")).to_contain_text("ValueError")
    job.delete()


def test_gpus_share_their_charts(page: Page, running_job: weft.Job) -> None:
    running_job.wait(timeout=900)
    # The job's disk and network metrics, renamed: this machine may have no GPU.
    names = {"disk_read": "gpu0_percent", "disk_write": "gpu1_percent", "net_in": "gpu0_power_w"}

    def renamed(route: Route) -> None:
        url = route.request.url
        for name, gpu in names.items():
            url = url.replace(gpu, f"{name}_bytes_per_s")
        answer = route.fetch(url=url)
        text = answer.text()
        for name, gpu in names.items():
            text = text.replace(f"{name}_bytes_per_s", gpu)
        route.fulfill(response=answer, body=text)

    page.route(re.compile(r"/metrics(/query)?\?"), renamed)
    page.goto(f"/jobs/{running_job.id}/system")
    share = page.get_by_role("region", name="GPU utilisation").get_by_role("listitem")
    expect(share).to_have_text([re.compile(r"GPU 0.*\d %"), re.compile(r"GPU 1.*\d %")])
    expect(page.get_by_role("region", name="GPU power").get_by_role("listitem")).to_contain_text(" W")


def test_rerun_with_another_manifest_halt_and_resume(
    page: Page, stack: Stack, running_job: weft.Job, tmp_path: Path
) -> None:
    running_job.wait(timeout=900)
    page.goto(f"/jobs/{running_job.id}")
    page.get_by_role("link", name="Rerun").click()
    expect(page.get_by_role("heading", name=f"Rerun {HOSTILE}")).to_be_visible()
    changes, rerun = page.get_by_role("region", name="Changes"), page.get_by_role("button", name="Rerun")
    expect(changes).to_contain_text("the same manifest again")
    expect(rerun).to_be_enabled()
    editor = page.get_by_role("textbox", name="Manifest, in YAML")
    edited = yaml.safe_load(editor.input_value())
    editor.fill(yaml.safe_dump(edited | {"learners": "x"}))
    expect(page.get_by_role("status").filter(has_text="learners")).to_contain_text("expected a whole number")
    expect(rerun).to_be_disabled()
    del edited["labels"], edited["data_stores"]
    edited["framework"]["command"] = f"python noisy.py {tmp_path / 'never'}"
    editor.fill(yaml.safe_dump(edited))
    expect(changes).to_contain_text(f"{HOSTILE} → not set")
    expect(changes).to_contain_text("data_stores[0].id")
    assert faults(page) == []
    rerun.click()
    expect(page.get_by_text("Rerun of")).to_be_visible()
    expect(page.get_by_role("region", name="About").get_by_role("button", name="Remove the label")).to_have_count(0)
    expect(page.locator(".page-head .state")).to_have_text("PROCESSING", timeout=120_000)
    page.get_by_role("button", name="Halt").click()
    page.get_by_label("Grace in seconds").fill("1")
    page.get_by_role("dialog").get_by_role("button", name="Halt").click()
    expect(page.locator(".page-head .state")).to_have_text("HALTED", timeout=120_000)
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".page-head .state")).to_have_text("PROCESSING", timeout=120_000)
    expect(page.get_by_text("Attempt 2")).to_be_visible()
    stack.client.job(page.url.split("/")[4]).delete()


def test_every_page_can_be_used_by_everyone(page: Page, running_job: weft.Job) -> None:
    """axe finds no serious fault in either theme, and nothing reaches beyond a phone's screen."""
    running_job.wait(timeout=900)
    job = f"/jobs/{running_job.id}"
    for url, shown in (
        ("/", ".jobs tbody tr"),
        (job, ".timeline"),
        (f"{job}/logs?q=step&line=3", ".log-line.target"),
        (f"{job}/files?path=metrics.json", ".code .hljs-attr"),
        (f"{job}/code", ".code .hljs-attr"),
        (f"{job}/events", ".events li"),
        ("/nowhere", ".side"),
    ):
        page.set_viewport_size(_PHONE)
        page.emulate_media(color_scheme="dark")
        page.goto(url)
        expect(page.locator(shown).first).to_be_visible()
        assert faults(page) == [], url
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), url
        page.set_viewport_size(_DESKTOP)
        page.emulate_media(color_scheme="light")
        assert faults(page) == [], url
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), url
