"""`make screenshots`: the pages with realistic jobs, at three sizes, light and dark, written to
dashboard/.cache/screenshots; those of the documentation to docs/screenshots. ``ARGS="jobs job"`` takes some of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.fernet import Fernet
from playwright.sync_api import Browser, ViewportSize, sync_playwright
from pydantic import SecretStr
from tests.api.conftest import Api
from tests.dashboard.conftest import Theme, chromium
from tests.dashboard.realistic import MODEL, fill
from tests.e2e.stack import REPOSITORY
from tests.servers import Servers

from weft_core.engine_settings import KubernetesSettings, LocalSettings
from weft_core.settings import Settings

DOCUMENTED = REPOSITORY / "docs/screenshots"
ALL = REPOSITORY / "dashboard/.cache/screenshots"
SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1440, "height": 900},
    "tablet": {"width": 1024, "height": 768},
    "phone": {"width": 390, "height": 844},
}
THEMES: tuple[Theme, ...] = ("light", "dark")
_IN_DOCS: dict[str, Theme] = {
    **dict.fromkeys(("jobs", "job", "failure", "metrics", "compare", "submit", "cluster"), "light"),
    **dict.fromkeys(("logs", "code", "model"), "dark"),
}


@contextmanager
def _api(home: Path) -> Iterator[Api]:
    servers = Servers()
    with servers.database_url() as url:
        api = Api(
            Settings(
                home=home,
                database_url=SecretStr(url),
                redis_url=SecretStr(servers.redis.url),
                secret_keys=[SecretStr(Fernet.generate_key().decode())],
                s3=servers.bucket(),
                engines={"local": LocalSettings(), "gpu": KubernetesSettings()},
            )
        )
        yield api
        api.stop()
        api.context.database.close()
    servers.stop()


def main(wanted: list[str]) -> None:
    for folder in (DOCUMENTED, ALL):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-screenshots-") as home, _api(Path(home)) as api:
        owner = api.person()
        team = fill(api, owner)
        running, (first, second, _) = f"/jobs/{team.running}", team.compared
        pages = {
            "jobs": "/",
            "job": running,
            "failure": f"/jobs/{team.failed}",
            "logs": f"{running}/logs?q=checkpoint&line=98",
            "metrics": f"{running}/metrics",
            "system": f"{running}/system?x=elapsed",
            "events": f"/jobs/{team.failed}/events",
            "files": f"/jobs/{first}/files?path=summary.json",
            "code": f"{running}/code?path=train.py",
            "compare": f"/compare?job={first}&job={second}",
            "submit": f"/submit?from={team.running}",
            "cluster": "/cluster",
            "model": f"/models/{MODEL}",
            "stores": "/stores",
            "tokens": "/tokens",
            "unknown": "/nowhere",
        }
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            for size in SIZES:
                for theme in THEMES:
                    _pictures(browser, api.url, owner.token, pages, size, theme, wanted)
            browser.close()


def _pictures(
    browser: Browser, url: str, token: str, pages: dict[str, str], size: str, theme: Theme, wanted: list[str]
) -> None:
    with browser.new_context(base_url=url, color_scheme=theme, viewport=SIZES[size]) as context:
        context.request.post("/api/v1/session", data={"token": token})
        page = context.new_page()
        for name, path in pages.items():
            if wanted and name not in wanted:
                continue
            page.goto(path)
            page.wait_for_timeout(1500)  # charts and live lists settle; a picture is no test
            picture = page.screenshot(path=ALL / f"{name}-{size}-{theme}.png")
            if size == "desktop" and _IN_DOCS.get(name) == theme:
                (DOCUMENTED / f"{name}.png").write_bytes(picture)
            if (name, size, theme) == ("jobs", "phone", "light"):
                (DOCUMENTED / "jobs-phone.png").write_bytes(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
