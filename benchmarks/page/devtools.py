"""A headless Chromium and its DevTools protocol. Each call has a time limit: what hangs is named, and ends the run."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

SECONDS = 30.0
"""The most that a call may take."""
WIDTH, HEIGHT = 1280, 800
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",  # pages of its own that it loads for each window
    "--disable-dev-shm-usage",  # containers have little of it, and a browser without it hangs
    "--disable-quic",
    "--disable-sync",
    "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
)
_CATEGORIES = (
    "blink.user_timing",
    "devtools.timeline",
    "disabled-by-default-devtools.timeline",
    "disabled-by-default-devtools.timeline.frame",
)
_PIECE = 4 << 20  # bytes of a trace that are read at once

Trace = list[dict[str, Any]]


class Stuck(RuntimeError):
    """The browser did not do something in time, or refused it."""


class Devtools:
    """The connection to the browser; the calls of a page carry its session."""

    def __init__(self, url: str) -> None:
        self._connection: ClientConnection = connect(url, max_size=None, open_timeout=SECONDS, ping_interval=None)
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=10_000)

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, params: dict[str, Any], session: str | None = None) -> int:
        """Without waiting for the answer, whose number this returns."""
        self._number += 1
        call: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            call["sessionId"] = session
        self._connection.send(json.dumps(call))
        return self._number

    def answer(self, number: int, what: str, seconds: float = SECONDS) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while number not in self._answers:
            self._receive(end, f"{what} had no answer in {seconds:g} s")
        found = self._answers.pop(number)
        if "error" in found:
            raise Stuck(f"the browser refused {what}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    def call(
        self, method: str, params: dict[str, Any] | None = None, session: str | None = None, seconds: float = SECONDS
    ) -> dict[str, Any]:
        return self.answer(self.send(method, params or {}, session), method, seconds)

    def event(self, method: str, seconds: float = SECONDS) -> dict[str, Any]:
        """The parameters of the next event with this name."""
        end = time.monotonic() + seconds
        while True:
            while self._events:
                event = self._events.popleft()
                if event["method"] == method:
                    params: dict[str, Any] = event["params"]
                    return params
            self._receive(end, f"{method} did not come in {seconds:g} s")

    def _receive(self, end: float, late: str) -> None:
        try:
            message = json.loads(self._connection.recv(max(0.0, end - time.monotonic())))
        except TimeoutError:
            raise Stuck(late) from None
        except WebSocketException as error:
            raise Stuck(f"the browser is gone: {error}") from error
        if "id" in message:
            self._answers[message["id"]] = message
        else:
            self._events.append(message)


class Page:
    """One tab, in a browser context of its own: its cache is empty, and nobody else's cookies are there."""

    def __init__(self, devtools: Devtools, cookies: list[dict[str, Any]]) -> None:
        self._devtools = devtools
        self._context = devtools.call("Target.createBrowserContext")["browserContextId"]
        devtools.call("Storage.setCookies", {"cookies": cookies, "browserContextId": self._context})
        opened = {"url": "about:blank", "browserContextId": self._context}
        target = devtools.call("Target.createTarget", opened)["targetId"]
        attached = devtools.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        self.call("Page.enable")
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def close(self) -> None:
        self._devtools.call("Target.disposeBrowserContext", {"browserContextId": self._context})

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._devtools.call(method, params, self._session)

    def send(self, method: str, **params: Any) -> int:
        return self._devtools.send(method, params, self._session)

    def answer(self, number: int, what: str) -> None:
        self._devtools.answer(number, what)

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise Stuck(f"{expression} failed: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = SECONDS) -> None:
        """Until it is true. The page is asked ten times a second."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > end:
                text = self.evaluate("document.body.innerText.slice(0, 500)")
                raise Stuck(f"not true after {seconds:g} s: {expression}; the page shows: {text}")
            time.sleep(0.1)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


class Browser:
    def __init__(self, program: str, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                stdout=log,
                stderr=log,
                start_new_session=True,  # its processes end together
            )
        try:
            self.devtools = Devtools(self._url(folder / "profile" / "DevToolsActivePort"))
        except BaseException:
            self._kill()
            raise

    def stop(self) -> None:
        try:
            self.devtools.call("Browser.close", seconds=5)
            self._process.wait(10)
        except (Stuck, subprocess.TimeoutExpired):
            pass
        finally:
            self.devtools.close()
            self._kill()

    def page(self, cookies: list[dict[str, Any]]) -> Page:
        return Page(self.devtools, cookies)

    @contextmanager
    def tracing(self, into: Trace) -> Iterator[None]:
        """Put the events of all processes of the browser ``into`` the list."""
        config = {"includedCategories": list(_CATEGORIES), "excludedCategories": ["*"], "traceBufferSizeInKb": 200_000}
        self.devtools.call("Tracing.start", {"traceConfig": config, "transferMode": "ReturnAsStream"})
        yield
        self.devtools.call("Tracing.end")
        done = self.devtools.event("Tracing.tracingComplete", 60)
        if done.get("dataLossOccurred"):
            raise Stuck("the trace does not fit its buffer")
        pieces = []
        while True:
            piece = self.devtools.call("IO.read", {"handle": done["stream"], "size": _PIECE})
            pieces.append(piece["data"])
            if piece["eof"]:
                break
        self.devtools.call("IO.close", {"handle": done["stream"]})
        into.extend(json.loads("".join(pieces))["traceEvents"])

    def _url(self, path: Path) -> str:
        """Where its DevTools listen: it writes the port and the path into a file."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            lines = path.read_text().split() if path.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise Stuck(f"Chromium did not start in {SECONDS:g} s: {self._log.read_text()[-2000:]}")

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()
