"""The dashboard as its users see it: Chromium on a real stack with real jobs."""

from __future__ import annotations

import json
import os
import shutil
import threading
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import httpx
import pytest
from _pytest._code.code import ExceptionRepr
from playwright.sync_api import Browser, BrowserContext, Dialog, Error, Locator, Page, Request, expect, sync_playwright
from tests.e2e.stack import REPOSITORY, Stack, eventually, local_engine, manifest, running

import weft

Theme = Literal["light", "dark"]
PROGRAMS = Path(__file__).parent / "programs"
AXE = REPOSITORY / "dashboard/node_modules/axe-core/axe.min.js"
INSECURE = "weft.test"
HOSTILE = '<img src=x onerror="window.broken=1">'


_PATIENCE = 120_000
"""Milliseconds: generous on any machine; nothing is ever waited for longer than it takes."""
expect.set_options(timeout=_PATIENCE)


_NAMED = os.environ.get("WEFT_CHROMIUM")  # read here, as no test sees variables of this name


def chromium(*before: str) -> str:
    """$WEFT_CHROMIUM, or the first of these programs that is installed: ``before``, then the system's Chromium."""
    found = _NAMED or next(
        filter(None, map(shutil.which, (*before, "chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        pytest.skip("NOT RUN: no Chromium (Debian: apt install chromium-headless-shell), and no WEFT_CHROMIUM")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # By a name other than localhost, a page over http is not secure, and the browser offers it fewer functions.
        rules = f"--host-resolver-rules=MAP {INSECURE} 127.0.0.1"
        # Without a window's controls, a browser takes half of the processor time.
        program = chromium("chromium-headless-shell")
        chrome = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", rules])
        yield chrome
        chrome.close()


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>FfDL</title>")

    def log_message(self, *args: Any, **kwargs: Any) -> None:
        pass


@pytest.fixture(scope="session")
def other_site() -> Iterator[str]:
    """The origin of another site, whose page is empty: scripts that a test runs there are that site's scripts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, other_site: str) -> Iterator[Stack]:
    engines = {"local": local_engine(tmp_path_factory)}
    settings = {"WEFT_API__FFDL_ORIGINS": json.dumps([other_site]), "WEFT_ENGINES": json.dumps(engines)}
    with running(tmp_path_factory.mktemp("dashboard") / "home", settings) as stack:
        yield stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the page's text, and what its browser missed, with a test that failed on it."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    failure = report.longrepr
    if report.when == "call" and report.failed and isinstance(page, Page) and isinstance(failure, ExceptionRepr):
        with suppress(Error):
            failure.addsection(f"the page {page.url}", page.locator("body").inner_text(timeout=10_000))
            failure.addsection("requests without an answer", "\n".join(_unanswered.get(page, {}).values()))
    return report


_unanswered: WeakKeyDictionary[Page, dict[Request, str]] = WeakKeyDictionary()


def _note_unanswered(page: Page) -> None:
    """Keep the page's requests that failed or have no answer yet, for a test that fails."""
    requests = _unanswered[page] = {}

    def finish(request: Request) -> None:
        requests.pop(request, None)

    page.on("request", lambda request: requests.update({request: f"{request.method} {request.url}: no answer"}))
    page.on("requestfinished", finish)
    page.on("requestfailed", lambda request: requests.update({request: f"{request.url}: {request.failure}"}))


@dataclass(frozen=True)
class Site:
    """The dashboard of a stack."""

    url: str
    token: str


@pytest.fixture(scope="session")
def site(stack: Stack) -> Site:
    profile = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
    return Site(profile["url"], profile["token"])


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file whose being there ends the jobs `running_job` and `second_job`."""
    return tmp_path_factory.mktemp("release") / "now"


@pytest.fixture(scope="session")
def running_job(stack: Stack, release: Path) -> weft.Job:
    """A job that runs until `release` is there, and has hostile texts wherever a job has texts."""
    job = manifest(f"python noisy.py {release}", name=HOSTILE, description=HOSTILE, labels={"team": HOSTILE})
    return stack.train(job, PROGRAMS)


def sign_in(context: BrowserContext, **who: str) -> None:
    answer = context.request.post("/api/v1/session", data=who)
    assert answer.ok, answer.text()


@contextmanager
def visiting(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    """A browser without cookies whose first tab is at the API. Nothing moves on the pages: each frame costs time."""
    with browser.new_context(base_url=site.url, reduced_motion="reduce") as context:
        context.set_default_timeout(_PATIENCE)
        context.new_page().goto("/readyz")
        yield context


def new_tab(context: BrowserContext) -> Page:
    """One that the first tab opens: the two share a process, and what it has compiled of the dashboard's scripts."""
    first = context.pages[0]
    with first.expect_popup() as opened:
        first.evaluate("() => { open('about:blank') }")
    return opened.value


@pytest.fixture(scope="session")
def _browser_of_all(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    with visiting(browser, site) as context:
        yield context


@pytest.fixture
def context(_browser_of_all: BrowserContext, site: Site) -> Iterator[BrowserContext]:
    """A browser that is signed in, with the first tab alone."""
    sign_in(_browser_of_all, token=site.token)
    yield _browser_of_all
    _browser_of_all.unroute_all()
    for tab in _browser_of_all.pages[1:]:
        tab.close()


@pytest.fixture(scope="session")
def viewer(browser: Browser, site: Site) -> Iterator[Page]:
    """The page of a user who may look at the project and change nothing."""
    name, password = "victor", "victor's password"
    headers = {"Authorization": f"Bearer {site.token}"}
    with httpx.Client(base_url=f"{site.url}/api/v1", headers=headers, timeout=300) as http:
        http.post("/users", json={"name": name, "password": password}).raise_for_status()
        http.put(f"/projects/default/members/{name}", json={"role": "viewer"}).raise_for_status()
    with visiting(browser, site) as context:
        sign_in(context, user=name, password=password)
        yield new_tab(context)


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which no script but the dashboard's own may have run, and nothing have gone wrong, at the end."""
    opened = new_tab(context)
    _note_unanswered(opened)
    wrong: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", dismiss)
    opened.on(
        "console", lambda message: wrong.append(message.text) if "Content Security Policy" in message.text else None
    )
    yield opened
    assert opened.evaluate("window.broken") is None
    assert wrong == []


def faults(page: Page) -> list[str]:
    """What axe finds that is serious: rule, and where."""
    if page.evaluate("!window.axe"):
        page.evaluate(AXE.read_text())
    found = page.evaluate(
        """() => axe.run(document, {resultTypes: ['violations']}).then(r => r.violations
             .filter(v => ['serious', 'critical'].includes(v.impact))
             .map(v => `${v.id}: ${v.nodes.map(n => n.target.join(' ')).slice(0, 3).join(', ')}`))"""
    )
    return list(found)


def is_drawn(chart: Locator) -> None:
    """A canvas's bytes have more values than those of its ground when there is something on it."""
    values = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
    eventually(lambda: chart.locator("canvas").evaluate(values) > 3, "the chart is drawn")
