"""Opens and scrolls the pages, round by round, and prints what their traces say."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page
from tests.dashboard.conftest import chromium as installed

from benchmarks.logs.service import Service
from benchmarks.page import plain
from benchmarks.page.browser import (
    HEIGHT,
    SECONDS,
    WIDTH,
    Stuck,
    Trace,
    chromium,
    keep,
    step,
    tracing,
    visitor,
    wait_for,
)
from benchmarks.page.filling import Filled, filled
from benchmarks.page.trace import CONTENT, QUIET, Load, Scroll, read_load, read_scroll
from benchmarks.table import median, show, spread

JOBS = int(os.environ.get("WEFT_BENCH_JOBS", "1000"))
LINES = int(os.environ.get("WEFT_BENCH_LINES", "1000000"))
POINTS = int(os.environ.get("WEFT_BENCH_POINTS", "1000000"))
SERIES = int(os.environ.get("WEFT_BENCH_SERIES", "100"))
ROUNDS = int(os.environ.get("WEFT_BENCH_ROUNDS", "5"))
TRACES = os.environ.get("WEFT_BENCH_TRACES")
"""A folder for the traces and a picture of each page."""
READY, SMOOTH = 1000.0, 55.0
"""The goals: milliseconds until a page is ready, and frames/s while it scrolls."""
_PATIENCE = 10.0
"""Seconds in which a page may become ready after its content is there."""
_SECONDS = 4.0
"""Of scrolling."""
_A_SECOND = 60
"""Turns of the wheel."""
_HELD = 6000
"""Lines that the page holds of a log (LogWindow.ts)."""

# Sets the mark in the frame after that in which the content came into the document, and notes the end of long tasks.
_WATCH = """
(() => {
  window.longTaskEnd = 0;
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) longTaskEnd = Math.max(longTaskEnd, task.startTime + task.duration);
  }).observe({ type: "longtask", buffered: true });
  const there = () => %s;
  const look = () => {
    if (!there()) return;
    watch.disconnect();
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => performance.mark("%s");
      channel.port2.postMessage(0);
    });
  };
  const watch = new MutationObserver(look);
  watch.observe(document, { childList: true, subtree: true, characterData: true });
})();
"""
_MARK = f"performance.getEntriesByName('{CONTENT}')"


Visit = Callable[[], AbstractAsyncContextManager[BrowserContext]]


async def _nothing(page: Page) -> None:
    pass


@dataclass(frozen=True)
class Shown:
    """A page, and how to see that its content is there."""

    name: str
    url: str
    content: str


@dataclass(frozen=True)
class Wheel:
    """Scrolling of a page that is open, and what may come in between."""

    name: str
    shown: Shown
    delta: int
    """Pixels of a turn of the wheel; negative: upwards."""
    place: str
    """Where the page is: it must have changed."""
    before: Callable[[Page], Awaitable[None]] = _nothing
    meanwhile: str | None = None
    """Run in the middle."""


def measure(folder: Path) -> None:
    try:
        program = installed()
    except pytest.skip.Exception as why:
        print(f"page: {why}")
        return
    _say("starts the servers")
    service = Service(folder, apis=1)
    try:
        data = filled(service, JOBS, LINES, POINTS, SERIES, _say)
        loads, scrolls = asyncio.run(_visit(program, service, folder, data))
    finally:
        service.stop()
    _show_loads(loads)
    _show_scrolls(scrolls)


async def _visit(
    program: str, service: Service, folder: Path, data: Filled
) -> tuple[dict[str, list[Load]], dict[str, tuple[list[Scroll], list[Scroll]]]]:
    _say("starts the browser")
    api = service.apis[0].url
    pages = _pages(api, data)
    async with chromium(program) as browser:

        def visit() -> AbstractAsyncContextManager[BrowserContext]:
            return visitor(browser, api, service.person.token)

        return await _loads(browser, visit, pages), await _scrolls(browser, visit, folder, pages, data)


def _pages(api: str, data: Filled) -> dict[str, Shown]:
    rows = "document.querySelectorAll('.jobs tbody tr a[data-job]').length >= 20"
    line = f"[...document.querySelectorAll('.log-number')].at(-1)?.textContent === '{data.lines - 1}'"
    # All that can be seen are drawn.
    drawn = (
        "document.querySelector('.chart') && [...document.querySelectorAll('.chart')]"
        ".every((chart) => chart.getBoundingClientRect().top > innerHeight || chart.querySelector('.plot canvas'))"
    )
    return {
        "first": Shown("the first load, nothing cached", f"{api}/", rows),
        "list": Shown(f"the list of {data.jobs:,} jobs", f"{api}/", rows),
        "log": Shown(f"a log of {data.lines:,} lines", f"{api}/jobs/{data.log}/logs", line),
        "chart": Shown(f"a chart of {POINTS:,} points", f"{api}/jobs/{data.chart}/metrics", drawn),
        "charts": Shown(
            f"{data.series} charts of {POINTS:,} points together", f"{api}/jobs/{data.charts}/metrics", drawn
        ),
    }


# --- opening ---


async def _loads(browser: Browser, visit: Visit, pages: dict[str, Shown]) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {shown.name: [] for shown in pages.values()}
    for number in range(1, ROUNDS + 1):
        async with visit() as context:
            for name, shown in pages.items():
                _say(f"round {number} of {ROUNDS}: opens {shown.name}")
                trace: Trace = []
                async with tracing(browser, trace):
                    page = await _open(context, shown)
                    await _until_quiet(page)
                await _close(page, f"load-{name}-{number}", trace)
                found[shown.name].append(read_load(trace, shown.url))
    return found


async def _open(context: BrowserContext, shown: Shown) -> Page:
    async with step(f"opening {shown.url}", 3 * SECONDS):
        page = await context.new_page()
        await page.add_init_script(_WATCH % (shown.content, CONTENT))
        await page.goto(shown.url, wait_until="commit")
        await wait_for(page, f"{_MARK}.length > 0")
        return page


async def _close(page: Page, name: str, trace: Trace) -> None:
    async with step(f"closing {page.url}"):
        if TRACES is not None:
            await keep(Path(TRACES), name, trace, page)
        await page.close()


async def _until_quiet(page: Page) -> None:
    quiet = f"performance.now() - Math.max(longTaskEnd, {_MARK}[0].startTime) > {QUIET * 1500}"
    with suppress(Stuck):  # the result says so
        await wait_for(page, quiet, _PATIENCE)


def _show_loads(found: dict[str, list[Load]]) -> None:
    rows = []
    for name, loads in found.items():
        ready = [load.interactive for load in loads]
        never = sum(not load.quiet for load in loads)
        rows.append(
            [
                name,
                spread([load.content for load in loads], digits=0),
                spread(ready, digits=0) + (f", {never} not ready in {_PATIENCE:g} s" if never else ""),
                spread([load.longest for load in loads], digits=0),
                spread([load.processor for load in loads], digits=0),
                _missed(median(ready) >= READY, f"< {READY:g} ms"),
            ]
        )
    show(
        f"Pages until they are ready, ms: median (min to max) of {ROUNDS}",
        ["what", "content", "ready", "longest task", "processor time of the main thread", "goal for ready"],
        rows,
    )


# --- scrolling ---


async def _scrolls(
    browser: Browser, visit: Visit, folder: Path, pages: dict[str, Shown], data: Filled
) -> dict[str, tuple[list[Scroll], list[Scroll]]]:
    """Of each page, and of the plain page beside it."""

    def static(url: str) -> Shown:
        return Shown("plain", url, "document.body !== null")

    table, log = static(plain.table(folder, data.jobs)), static(plain.log(folder, _HELD))
    charts = static(plain.charts(folder, data.series))
    whole, of_log = "scrollY", "document.querySelector('.log').scrollTop"

    async def all_jobs(page: Page) -> None:
        """Until the last page of the list has come."""
        none_left = (
            "!([...document.querySelectorAll('button')].some((button) => /More jobs|Loading/.test(button.textContent)))"
        )
        await wait_for(page, f"() => (scrollTo(0, document.body.scrollHeight), {none_left})", 120)
        await asyncio.sleep(1)

    async def to_end(page: Page) -> None:
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await asyncio.sleep(1)

    async def log_to_end(page: Page) -> None:
        await page.evaluate("document.querySelector('.log').scrollTop = 1e9")
        await asyncio.sleep(1)

    # What the browser sends when its tab is looked at again: the page reads all that it shows anew.
    anew = "window.dispatchEvent(new Event('visibilitychange'))"
    of_view = "document.querySelector('.log-number').textContent"
    wheels = (
        (
            Wheel(f"{pages['list'].name}, while they are loaded", pages["list"], 20, whole),
            Wheel("plain", table, 20, whole),
        ),
        (
            Wheel(f"{pages['list'].name}, upwards, read anew meanwhile", pages["list"], -60, whole, all_jobs, anew),
            Wheel("plain", table, -60, whole, to_end),
        ),
        (
            Wheel(f"{pages['log'].name}, upwards", pages["log"], -100, of_view),
            Wheel("plain", log, -100, of_log, log_to_end),
        ),
        (Wheel(pages["charts"].name, pages["charts"], 60, whole), Wheel("plain", charts, 60, whole)),
    )
    found: dict[str, tuple[list[Scroll], list[Scroll]]] = {ours.name: ([], []) for ours, _ in wheels}
    for number in range(1, ROUNDS + 1):
        for at, pair in enumerate(wheels):
            for wheel, into in zip(pair, found[pair[0].name], strict=True):
                _say(
                    f"round {number} of {ROUNDS}: scrolls {pair[0].name}{'' if wheel is pair[0] else ': a plain page'}"
                )
                name = f"scroll-{at}-{'page' if wheel is pair[0] else 'plain'}-{number}"
                async with visit() as context:
                    page = await _open(context, wheel.shown)
                    async with step(f"what comes before the scrolling of {wheel.shown.url}", 150):
                        await wheel.before(page)
                    await asyncio.sleep(QUIET)
                    trace: Trace = []
                    async with tracing(browser, trace):
                        start, end = await _scroll(page, wheel)
                    await _close(page, name, trace)
                    into.append(read_scroll(trace, start, end))
    return found


async def _scroll(page: Page, wheel: Wheel) -> tuple[float, float]:
    """Turns the wheel at the page's middle. Returns when it began and ended."""
    async with step(f"scrolling {wheel.shown.url}", _SECONDS + SECONDS):
        before = await page.evaluate(wheel.place)
        # Not `page.mouse.wheel`, which waits until the page has scrolled: a user does not wait.
        devtools = await page.context.new_cdp_session(page)
        where = {"x": WIDTH // 2, "y": HEIGHT // 2, "deltaX": 0, "deltaY": wheel.delta}
        turns = round(_SECONDS * _A_SECOND)
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for turn in range(turns):
                await asyncio.sleep(max(0.0, start + turn / _A_SECOND - time.monotonic()))
                group.create_task(devtools.send("Input.dispatchMouseEvent", {"type": "mouseWheel", **where}))
                if wheel.meanwhile and turn == turns // 3:
                    group.create_task(page.evaluate(wheel.meanwhile))
            end = time.monotonic()
        if await page.evaluate(wheel.place) == before:
            raise Stuck(f"{wheel.shown.url} did not scroll")
        return start, end


def _show_scrolls(found: dict[str, tuple[list[Scroll], list[Scroll]]]) -> None:
    rows = []
    for name, (ours, plains) in found.items():
        frames, bare = ([scroll.frames for scroll in scrolls] for scrolls in (ours, plains))
        rows.append(
            [
                name,
                spread(frames),
                spread(bare),
                f"{median(frames) / median(bare):.2f}",
                spread([scroll.main for scroll in ours]),
                spread([scroll.gap for scroll in ours], digits=0),
                spread([scroll.longest for scroll in ours], digits=0),
                spread([scroll.processor for scroll in ours], 100, 0),
                _missed(median(frames) < SMOOTH, f"≥ {SMOOTH:g}"),
            ]
        )
    columns = ["what", "frames/s", "a plain page", "ratio", "with the main thread", "longest gap, ms"]
    show(
        f"Scrolling for {_SECONDS:g} s, {_A_SECOND} turns of the wheel a second: median (min to max) of {ROUNDS}",
        [*columns, "longest task, ms", "main thread busy, %", "goal"],
        rows,
    )


def _missed(missed: bool, goal: str) -> str:
    return f"{goal}: missed" if missed else goal


def _say(what: str) -> None:
    print(f"page: {what}", flush=True)
