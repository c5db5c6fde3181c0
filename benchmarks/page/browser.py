"""A headless Chromium, driven by Playwright. Each step has a time limit: the run ends and names the step that hangs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Error, Page, async_playwright

SECONDS = 30.0
"""The most that a step may take."""
WIDTH, HEIGHT = 1280, 800
_FLAGS = (
    "--no-sandbox",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",  # pages of its own that it loads for each window
)
_CATEGORIES = (
    "blink.user_timing",
    "devtools.timeline",
    "disabled-by-default-devtools.timeline",
    "disabled-by-default-devtools.timeline.frame",
)

Trace = list[dict[str, Any]]


class Stuck(RuntimeError):
    """The browser did not do something in time, or the page does not show what it should."""


@asynccontextmanager
async def step(what: str, seconds: float = SECONDS) -> AsyncIterator[None]:
    """Raises Stuck if the block takes longer, or the browser refuses something in it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Stuck(f"{what} took more than {seconds:g} s") from None
    except Error as error:
        raise Stuck(f"{what}: {error}") from error


@asynccontextmanager
async def chromium(program: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        async with step("the start of Chromium"):
            browser = await playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield browser
        finally:
            async with step("the end of Chromium"):
                await browser.close()


@asynccontextmanager
async def visitor(browser: Browser, api: str, token: str) -> AsyncIterator[BrowserContext]:
    """A browser context of its own, signed in at the API: its cache is empty, and nobody else's cookies are there."""
    async with step("a new browser context"):
        context = await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        context.set_default_timeout(SECONDS * 1000)
        signed_in = await context.request.post(f"{api}/api/v1/session", data={"token": token})
        if not signed_in.ok:
            raise Stuck(f"the sign-in was answered with {signed_in.status}: {await signed_in.text()}")
    try:
        yield context
    finally:
        async with step("the end of a browser context"):
            await context.close()


@asynccontextmanager
async def tracing(browser: Browser, into: Trace) -> AsyncIterator[None]:
    """Put the events of all processes of the browser ``into`` the list."""
    async with step("the start of the trace"):
        await browser.start_tracing(categories=list(_CATEGORIES))
    yield
    async with step("the end of the trace", 60):
        into.extend(json.loads(await browser.stop_tracing())["traceEvents"])


async def wait_for(page: Page, expression: str, seconds: float = SECONDS) -> None:
    """Until it is true. The page is asked ten times a second: its content security policy forbids what Playwright's
    ``wait_for_function`` does."""
    end = time.monotonic() + seconds
    while not await page.evaluate(expression):
        if time.monotonic() > end:
            text = await page.evaluate("document.body.innerText.slice(0, 500)")
            raise Stuck(f"not true after {seconds:g} s: {expression}; the page shows: {text}")
        await asyncio.sleep(0.1)


async def keep(folder: Path, name: str, trace: Trace, page: Page) -> None:
    """Write the trace and a picture of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"traceEvents": trace}))
    await page.screenshot(path=folder / f"{name}.png")
