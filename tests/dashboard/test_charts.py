"""A job submitted by the page, its charts, and jobs compared."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect
from tests.dashboard.conftest import HOSTILE, INSECURE, Site, faults, is_drawn, new_tab, visiting
from tests.e2e.stack import Stack

import weft

_MANIFEST = """\
name: by-page
learners: 2
cpus: 0.5
memory: 512 MiB
framework:
  name: python
  version: "3.11"
  command: python train.py 0.5
"""
_TRAIN = f"""\
import math, os, sys
from weft_trainer import log_metrics

rate = float(sys.argv[1])
for step in range(400):
    loss = math.exp(-rate * step / 100) + 0.001 * int(os.environ["LEARNER_ID"])
    log_metrics(step=step, loss=loss, group="train")
log_metrics({{{HOSTILE!r}: 1.0}}, step=400)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code = tmp_path_factory.mktemp("code") / "project"
    (code / "__pycache__").mkdir(parents=True)
    (code / "__pycache__/train.pyc").write_bytes(b"\0")
    (code / "manifest.yml").write_text(_MANIFEST)
    (code / "train.py").write_text(_TRAIN)
    (code / ".weftignore").write_text("*.bin\n")
    (code / "weights.bin").write_bytes(bytes(1000))
    return code


@pytest.fixture(scope="module")
def jobs() -> list[str]:
    """Ids of the jobs that the first test submits."""
    return []


def _editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Manifest, in YAML")


def _drop(page: Page, folder: Path) -> None:
    """Drags the folder from the desktop onto the page."""
    box = page.locator(".drop").bounding_box()
    assert box
    devtools = page.context.new_cdp_session(page)
    for step in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        event = {"type": step, "x": box["x"] + 20, "y": box["y"] + 20, "data": data}
        devtools.send("Input.dispatchDragEvent", event)


def _choose(page: Page, folder: Path) -> None:
    page.get_by_label("The code's folder").set_input_files(folder)


def _submit(page: Page, folder: Path, name: str, bring: Callable[[Page, Path], None]) -> tuple[str, int]:
    """The new job's id, and how often code was sent."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    page.goto("/submit")
    expect(page.get_by_text("Drop the code’s folder")).to_be_visible()
    bring(page, folder)
    # The manifest is taken out of it, and what is ignored.
    expect(page.get_by_text("2 files, ")).to_contain_text("left out")
    expect(_editor(page)).to_have_value(_MANIFEST)
    _editor(page).fill(_MANIFEST.replace("by-page", name))
    expect(page.get_by_role("region", name="What it will run as")).to_contain_text("python:3.11")
    # By the room that the engine has; other jobs of the stack may have taken some.
    expect(page.get_by_role("status").filter(has_text=re.compile("^(Fits now|Would wait)"))).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(r"/jobs/job-[a-z0-9]+$"))
    expect(page.locator(".page-head .state")).to_be_visible()  # until then the old page asks whether to leave it
    assert all(re.search("/code/[0-9a-f]{64}$", url) for url in sent)
    return page.url.rsplit("/", 1)[1], len(sent)


def test_a_manifest_is_checked_while_it_is_written(page: Page) -> None:
    page.goto("/submit")
    _editor(page).fill("name: x\nlearners: -3\nfoo: 1\n")
    expect(page.get_by_role("status").filter(has_text="unknown key")).to_contain_text("expected a whole number")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    expect(page.locator(".editor-lines .wrong")).to_have_text(["1", "2", "3"])
    page.get_by_role("button", name="line 2").click()
    expect(_editor(page)).to_be_focused()
    assert _editor(page).evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)") == "learners: -3"
    assert faults(page) == []


def test_a_folder_is_submitted_and_unchanged_code_is_not_sent_again(page: Page, folder: Path, jobs: list[str]) -> None:
    first, sent = _submit(page, folder, "by-page", _drop)
    assert sent == 1
    second, sent = _submit(page, folder, "by-page-again", _choose)
    assert sent == 0
    jobs += [first, second]


def test_charts_are_drawn_zoomed_and_overlaid(page: Page, stack: Stack, jobs: list[str]) -> None:
    first, second = jobs
    for job in jobs:
        stack.client.job(job).wait(timeout=900)
    page.goto(f"/jobs/{first}/metrics")
    chart = page.get_by_role("region", name="train/loss")
    expect(chart.get_by_role("listitem").filter(has_text="learner 1")).to_contain_text("0.137")
    expect(chart.get_by_role("listitem")).to_have_count(2)
    # A program's own words stay words.
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    # uPlot has drawn: the lines' colour is on the canvas.
    is_drawn(chart)

    plot = chart.locator(".u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
    with page.expect_response(re.compile("/metrics/query.*name=train%2Floss.*from=.*to=")) as answer:
        page.mouse.up()
    steps = answer.value.json()["series"][0]["x"]
    assert 90 <= steps[0] <= 110
    assert 190 <= steps[-1] <= 210
    expect(page).to_have_url(re.compile("from=.*to="))
    plot.dblclick()
    expect(page).not_to_have_url(re.compile("from="))

    page.get_by_label("Log scale").check()
    page.get_by_label("Smoothing").fill("60")
    page.get_by_role("button", name="2", exact=True).click()
    expect(page).to_have_url(re.compile("log=1.*smooth=60.*learner=2"))
    page.get_by_role("button", name="With another job").click()
    page.get_by_role("dialog").get_by_role("button", name="by-page-again").click()
    expect(page).to_have_url(re.compile(f"with={second}"))
    page.reload()
    expect(chart.get_by_role("listitem")).to_have_text([re.compile("^by-page[^-]"), re.compile("^by-page-again")])
    assert faults(page) == []

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "train" in Path(download.value.path()).read_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="Parquet").click()
    assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"


def test_the_list_shows_sorts_and_filters_by_a_metric(page: Page, jobs: list[str]) -> None:
    page.goto("/?q=by-page")
    rows = page.get_by_role("row")
    expect(rows).to_have_count(3)
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="train/loss").check()
    loss = rows.filter(has_text=jobs[0]).locator("[data-label='train/loss']")
    expect(loss).to_have_text(re.compile(r"0\.1\d+"))
    expect(loss).to_have_attribute("title", re.compile(r"from 0\.1\d+ to 1"))
    page.get_by_text("Columns").click()
    page.get_by_role("button", name="train/loss").click()
    expect(page).to_have_url(re.compile("sort=.*loss"))
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Metric filter").fill("train/loss < 0.1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No job fits these filters")).to_be_visible()
    page.get_by_role("button", name="Remove the filter train/loss<0.1").click()
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Metric filter").fill("train/loss.max > 0.9")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(3)


def test_the_overview_of_a_job_shows_its_main_curves(page: Page, jobs: list[str]) -> None:
    page.goto(f"/jobs/{jobs[0]}")
    curves = page.get_by_role("region", name="Metrics")
    is_drawn(curves.get_by_role("figure", name="loss"))
    expect(curves.get_by_role("figure", name="loss")).to_contain_text(re.compile(r"best 0\.1\d+"))
    assert faults(page) == []


def test_a_zip_is_submitted_by_a_page_that_is_not_secure(browser: Browser, site: Site, stack: Stack) -> None:
    """The browser offers such a page no hash function, so code and manifest are sent together."""
    with visiting(browser, Site(site.url.replace("127.0.0.1", INSECURE), site.token)) as context:
        page = new_tab(context)
        page.goto("/submit")
        page.get_by_text("Use a token instead").click()
        page.get_by_label("Token").fill(site.token)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(re.compile("/submit"))
        assert not page.evaluate("isSecureContext")
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("train.py", _TRAIN)
        zipped: FilePayload = {"name": "code.zip", "mimeType": "application/zip", "buffer": code.getvalue()}
        page.get_by_label("The code's zip").set_input_files(zipped)
        expect(page.get_by_text("code.zip")).to_be_visible()
        _editor(page).fill(_MANIFEST.replace("by-page", "by-zip").replace("cpus: 0.5", "cpus: 1000"))
        with page.expect_request(
            lambda request: request.method == "POST" and request.url.endswith("/api/v1/jobs")
        ) as sent:
            page.get_by_role("button", name="Submit").click()
        assert sent.value.headers["content-type"].startswith("multipart/form-data")
        expect(page).to_have_url(re.compile(r"/jobs/job-[a-z0-9]+$"))
        page.get_by_role("link", name="Code", exact=True).click()
        page.get_by_role("link", name="train.py").click()
        expect(page.locator(".code-text")).to_contain_text("log_metrics")
        stack.client.job(page.url.split("/")[4]).delete()


def test_jobs_are_compared(page: Page, jobs: list[str], running_job: weft.Job) -> None:
    page.goto(f"/compare?job={running_job.id}&job={jobs[0]}")
    expect(page.get_by_role("region", name="What differs in the manifests")).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="The jobs").get_by_role("link", name=HOSTILE)).to_be_visible()
    page.goto(f"/compare?job={jobs[0]}&job={jobs[1]}&job=job-nothing")
    expect(page.get_by_text("Not found in this project: job-nothing")).to_be_visible()
    differences = page.get_by_role("region", name="What differs in the manifests")
    expect(differences.get_by_role("row")).to_have_count(2)  # the head, and the name
    expect(differences).to_contain_text("by-page-again")
    values = page.get_by_role("region", name="Metrics: last, smallest and largest value")
    expect(values.get_by_role("row").filter(has_text="train/loss")).to_contain_text("0.137")
    expect(values).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="train/loss").get_by_role("listitem")).to_have_count(4)
    assert faults(page) == []
    page.get_by_role("button", name=f"Without by-page-again ({jobs[1]})").first.click()
    expect(page).not_to_have_url(re.compile(jobs[1]))
