"""Pages that need no worker: the API alone serves them, and agents' calls move the jobs on."""

from __future__ import annotations

import re

import psycopg
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select
from tests.api.conftest import Api, Person, api
from tests.api.conftest import api_settings as settings_of_api
from tests.dashboard.api_alone import ann, context
from tests.dashboard.conftest import faults
from tests.e2e.stack import REPOSITORY
from tests.many_jobs import fill

from weft_core.objects import results_prefix
from weft_core.settings import OutgoingSettings, Settings
from weft_core.store.models import Delivery

__all__ = ["ann", "api", "context", "settings_of_api"]  # fixtures

_MANIFEST = """
name: lr-{n}
labels: {{sweep: lr}}
framework: {{name: pytorch, command: python train.py {n}}}
"""
_NOTIFY = "notify: [{{url: 'https://127.0.0.1:9/hook/secret-path', on: [FAILED]}}]"


@pytest.fixture(scope="module")
def api_settings(settings_of_api: Settings) -> Settings:
    return settings_of_api.model_copy(update={"outgoing": OutgoingSettings(allow=["127.0.0.1"])})


def _trained(api: Api, person: Person, n: int) -> None:
    """A job that has reported eight losses and completed."""
    job = person.submit(_MANIFEST.format(n=n))["id"]
    [agent] = api.attempt(job).agents
    agent.start()
    losses = [
        {"t": step, "kind": "user", "group": "", "etimes": {"iteration": step}, "values": {"loss": n / step}}
        for step in range(1, 9)
    ]
    answer = agent.post("metrics", sequence=1, records=losses)
    assert answer.status_code == 204, answer.text
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)


def test_a_schedule_starts_a_job_now_and_pages_show_what_waits_for_what(page: Page, api: Api, ann: Person) -> None:
    nightly = {"manifest": _MANIFEST.format(n=1), "set": {"name": "nightly", "schedule": "0 3 1 1 *"}}
    made = ann.http.post("/api/v1/schedules", json=nightly).raise_for_status().json()
    page.goto("/schedules")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("0 3 1 1 *")
    row.get_by_role("link").click()
    expect(page.get_by_role("region", name="Starts")).to_contain_text("None yet")
    page.get_by_role("button", name="Start a job now").click()
    started = page.get_by_role("region", name="Table of starts").get_by_role("link")
    expect(started).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".page-head .state")).to_have_text("PAUSED")
    assert faults(page) == []
    job = started.inner_text()
    started.click()
    expect(page.get_by_role("region", name="About")).to_contain_text(made["id"])

    waiting = ann.submit(_MANIFEST.format(n=2), set={"after": job, "name": "last"})["id"]
    expect(page.get_by_role("region", name="About").get_by_role("link", name=waiting)).to_be_visible()
    page.get_by_role("link", name=waiting).click()
    about = page.get_by_role("region", name="About")
    expect(about).to_contain_text(f"{job} to have completed: QUEUED")
    page.goto(f"/schedules/{made['id']}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No schedules yet")).to_be_visible()


def test_a_long_list_is_read_to_its_end(page: Page, api: Api, ann: Person) -> None:
    """All of its jobs can be reached, though rows far from the window are not in the document."""
    url = api.settings.database_url.get_secret_value().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, ann.project_id, 300, others=0)
    page.goto("/")
    jobs = page.locator("a[data-job]")
    expect(jobs.first).to_be_visible()
    # At the end again as soon as a page has come: the button for the next page is in sight all the time.
    page.evaluate(
        """() => {
            const toEnd = () => scrollTo(0, document.body.scrollHeight);
            window.toEnd = new MutationObserver(toEnd);
            window.toEnd.observe(document.body, {childList: true, subtree: true});
            toEnd();
        }"""
    )
    expect(page.get_by_role("link", name="BERT-finetune-1", exact=True)).to_be_in_viewport()
    expect(page.get_by_role("button", name=re.compile("More jobs|Loading"))).to_have_count(0)
    page.evaluate("window.toEnd.disconnect()")
    page.wait_for_function("document.querySelectorAll('a[data-job]').length < 200")
    page.get_by_label("Select all that are shown").check()
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("300 jobs selected")
    page.get_by_role("button", name="Clear the selection").click()
    page.evaluate("scrollTo(0, 0)")
    expect(jobs.first).to_have_accessible_name("resnet50-imagenet")
    expect(jobs.first).to_be_in_viewport()
    page.wait_for_function("document.querySelectorAll('a[data-job]').length > 60")
    for _ in range(60):
        page.keyboard.press("j")
    expect(page.locator(":focus")).to_have_accessible_name("BERT-finetune-241")
    expect(page.locator(":focus")).to_be_in_viewport()
    assert faults(page) == []

    page.goto("/?group=team")
    fold = page.locator("button[aria-expanded]").filter(has_text="team=text")
    of_group = page.get_by_title("Only jobs with team=text")
    expect(page.get_by_role("row")).to_have_count(54)  # the head, three groups, and the first 50 jobs
    fold.press("Enter")
    expect(fold).to_be_focused()
    expect(of_group).to_have_count(0)
    fold.press("Enter")
    expect(of_group.first).to_be_visible()


def test_as_many_jobs_as_may_be_are_compared(page: Page, api: Api, ann: Person) -> None:
    for n in range(1, 11):
        _trained(api, ann, n)
    page.goto("/?label=sweep%3Dlr")
    page.get_by_role("checkbox", name="Select all").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region", name="The jobs").get_by_role("columnheader")).to_have_count(11)
    expect(page.get_by_role("region", name="The jobs").get_by_role("cell", name="–")).to_have_count(0)
    chart = page.get_by_role("region", name="loss", exact=True)
    chart.scroll_into_view_if_needed()
    expect(chart.get_by_role("listitem")).to_have_count(10)
    values = page.get_by_role("region", name="Metrics: last, smallest and largest value")
    for n in range(1, 11):
        expect(values).to_contain_text(f"lr-{n}")
    assert faults(page) == []


def test_a_notification_that_failed_is_sent_again(page: Page, api: Api, ann: Person) -> None:
    job = ann.submit((_MANIFEST + _NOTIFY).format(n=1))["id"]
    page.goto(f"/jobs/{job}/events")
    expect(page.get_by_role("status").filter(has_text="event")).to_be_visible()
    expect(page.get_by_role("region", name="Notifications")).to_have_count(0)
    api.set_state(job, "FAILED", "learner 1: exit code 1")
    with api.context.database.transaction() as session:
        [delivery] = session.scalars(select(Delivery).where(Delivery.job_id == job))
        delivery.tries, delivery.status, delivery.next_try_at = 12, "HTTP 503", None
        delivery.tried_at = delivery.failed_at = delivery.queued_at
    row = page.get_by_role("region", name="Table of notifications").get_by_role("row").nth(1)
    expect(row).to_contain_text("HTTP 503")
    for text in ("FAILED", "learner 1: exit code 1", "https://127.0.0.1:9/…", "failed", "12"):
        expect(row).to_contain_text(text)
    assert faults(page) == []
    row.get_by_role("button", name="Send again").click()
    expect(row).to_contain_text("waiting")
    assert "secret-path" not in page.content()


def test_what_is_still_to_come_is_not_shown_as_empty(page: Page, api: Api, ann: Person) -> None:
    job = ann.submit(_MANIFEST.format(n=1))["id"]
    for state in ("PENDING", "PROCESSING", "STORING", "FAILED"):
        api.set_state(job, state)
    page.route(re.compile(r"/events\?after=|/logs"), lambda _: None)  # no answer comes
    page.goto(f"/jobs/{job}")
    for tab in ("Events", "Logs"):
        page.get_by_role("navigation", name="The job's pages").get_by_role("link", name=tab).click()
        expect(page.locator(".skeleton").first).to_be_visible()
        expect(page.locator("main")).not_to_contain_text(
            re.compile(r"no (events|lines)|\b0 (events|lines)", re.IGNORECASE)
        )
    page.unroute_all()
    page.goto(f"/jobs/{job}")
    line = page.locator(".timeline")
    expect(line).to_contain_text("STORING")
    expect(line.locator(".tone-bad")).to_have_text("FAILED")
    expect(line.locator(".tone-good")).to_have_count(0)


def test_images_histograms_and_texts_are_shown_step_by_step(page: Page, api: Api, ann: Person) -> None:
    job = ann.submit(_MANIFEST.format(n=1))["id"]
    written = (REPOSITORY / "dashboard/tests/pages/media/torch.tfevents").read_bytes()
    api.context.objects.put(f"{results_prefix(ann.project_id, job)}tb/events.out.tfevents.1", written)
    page.goto(f"/jobs/{job}/media")
    words = page.get_by_role("region", name="tb/words")
    expect(words.get_by_role("paragraph")).to_have_text("step 10")
    expect(words.get_by_role("strong")).to_have_text("step")
    words.get_by_role("slider", name="Step of tb/words").fill("0")
    expect(words.get_by_role("paragraph")).to_have_text("step 0")
    expect(page.get_by_role("img", name="tb/weights at step 10")).to_be_visible()
    image = page.get_by_role("img", name="tb/digits/sample at step 10")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 4
    assert faults(page) == []


def test_what_users_say_about_jobs_is_edited_where_it_stands(page: Page, api: Api, ann: Person) -> None:
    jobs = [ann.submit(_MANIFEST.format(n=n))["id"] for n in (1, 2, 3)]
    page.goto(f"/jobs/{jobs[0]}")
    page.get_by_label("Add a label").fill("stage=final, sweep-")
    page.get_by_label("Add a label").press("Enter")
    expect(page.get_by_role("link", name="stage=final")).to_be_visible()
    expect(page.get_by_role("link", name="sweep=lr")).to_have_count(0)
    page.get_by_role("button", name="Edit the notes").click()
    page.get_by_role("textbox", name="Notes").fill(
        "It <b>diverged</b>\n\n- **after** step 3\n- [why](javascript:alert(1))"
    )
    page.get_by_role("textbox", name="Notes").press("Control+Enter")
    notes = page.get_by_role("region", name="Notes")
    expect(notes.get_by_role("paragraph")).to_have_text("It <b>diverged</b>")
    expect(notes.get_by_role("listitem")).to_have_text(["after step 3", "why"])
    expect(notes.get_by_role("strong")).to_have_text("after")
    expect(notes.get_by_role("link")).to_have_count(0)
    assert faults(page) == []

    page.goto("/?sort=name")
    for name in ("lr-2", "lr-3"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    page.get_by_role("button", name="Label …").click()
    page.get_by_role("dialog").get_by_label("Labels").fill("team=vision")
    page.get_by_role("dialog").get_by_role("button", name="Label").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("checkbox", name="Select lr-3").check()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("lr-3")
    page.get_by_label("Group by").select_option("team")
    expect(page.get_by_role("rowheader", name="team=vision")).to_contain_text("1 job")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Save this list as").fill("By team")
    page.get_by_role("button", name="Save the view").click()
    expect(page.get_by_text("View: By team")).to_be_visible()
    assert faults(page) == []
    assert ann.http.get("/api/v1/views").json()["views"][0]["query"] == "sort=name&group=team"
    labels = [ann.http.get(f"/api/v1/jobs/{job}").json()["labels"] for job in jobs]
    assert labels == [{"stage": "final"}, {"sweep": "lr", "team": "vision"}, {"sweep": "lr", "team": "vision"}]
