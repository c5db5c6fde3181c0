"""`make screenshots`: pictures of real runs for the documentation, written to docs/screenshots/."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ViewportSize, sync_playwright
from tests.dashboard.conftest import Theme, chromium
from tests.e2e.stack import REPOSITORY, Stack, eventually, manifest, running

TARGET = REPOSITORY / "docs/screenshots"
PROGRAM = """
import math, os, pathlib, random, sys, time
from weft_trainer import log_metrics
random.seed(int(os.environ["LEARNER_ID"]))
for step in range(400 * int((sys.argv[1:] or ["1"])[0])):
    loss = 2.3 * math.exp(-step / 90) + 0.04 + random.random() * 0.05
    if step % 5 == 0:
        log_metrics({"loss": loss, "accuracy": 1 - loss / 2.6}, step=step)
    if step % 10 == 0:
        print(f"\\x1b[36mstep {step:4d}\\x1b[0m  loss {loss:.4f}  accuracy {1 - loss / 2.6:.4f}", flush=True)
    if step % 100 == 99:
        print(f"\\x1b[32mcheckpoint\\x1b[0m after step {step}", flush=True)
    time.sleep(0.02)
pathlib.Path(os.environ["RESULT_DIR"], "summary.json").write_text('{"accuracy": 0.98, "loss": 0.06}')
"""


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-screenshots-") as folder, running(Path(folder) / "home") as stack:
        small, job_id, model = _runs(stack, Path(folder))
        profile = tomllib.loads(stack.profile.read_text())["profiles"]["default"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            pictures: tuple[tuple[str, str, Theme, int], ...] = (
                ("jobs", "/", "light", 1280),
                ("jobs-phone", "/", "light", 360),
                ("job", f"/jobs/{job_id}", "light", 1280),
                ("logs", f"/jobs/{job_id}/logs?q=checkpoint&line=42", "dark", 1280),
                ("metrics", f"/jobs/{job_id}/metrics", "light", 1280),
                ("code", f"/jobs/{job_id}/code?path=train.py", "dark", 1280),
                ("compare", f"/compare?job={small}&job={job_id}", "light", 1280),
                ("submit", f"/submit?from={job_id}", "light", 1280),
                ("cluster", "/cluster", "light", 1280),
                ("model", f"/models/{model}", "dark", 1280),
            )
            for name, path, theme, width in pictures:
                _picture(browser, profile, path, TARGET / f"{name}.png", theme, width)
            browser.close()


def _runs(stack: Stack, folder: Path) -> tuple[str, str, str]:
    """Some jobs in several states; returns two to compare, of which the second is the one to look at, and a model."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    labels = {"team": "vision", "data": "digits"}
    train = manifest("python train.py", name="digits-baseline", learners=2, labels=labels, description="Two learners")
    stores = [{"id": "s3", "datastore": "default", "training_results": {"container": "results", "model": "digits"}}]
    train["data_stores"] = stores
    small = stack.train(train | {"name": "digits-small", "learners": 1}, code).wait(timeout=300)
    first = stack.train(train, code).wait(timeout=300)
    stack.train(train | {"name": "too-large-a-wish", "cpus": 512}, code)
    # One that holds all CPUs for as long as the pictures take, and some that wait for it.
    all_cpus = {"learners": 1, "cpus": stack.client.engines()[0].capacity["cpus"]}
    holds = stack.train(train | all_cpus | {"name": "digits-longer"} | _command("python train.py 1000"), code)
    eventually(lambda: holds.refresh().state == "PROCESSING", "the job runs", 300)
    for name, priority in (("digits-larger", 50), ("digits-urgent", 90), ("digits-some-day", 10)):
        stack.train(train | all_cpus | {"name": name, "priority": priority}, code)
    return small.id, first.id, "digits"


def _command(command: str) -> dict[str, Any]:
    return {"framework": {"name": "python", "version": "3.11", "command": command}}


def _picture(browser: Browser, profile: dict[str, str], path: str, target: Path, theme: Theme, width: int) -> None:
    size: ViewportSize = {"width": width, "height": 800 if width > 500 else 700}
    with browser.new_context(base_url=profile["url"], color_scheme=theme, viewport=size) as context:
        context.request.post("/api/v1/session", data={"token": profile["token"]})
        page = context.new_page()
        page.goto(path)
        page.wait_for_timeout(3000)  # charts and live lists settle; a picture is no test
        page.wait_for_function("() => !document.querySelector('.skeleton')", timeout=60_000)
        page.wait_for_timeout(500)
        page.screenshot(path=target)


if __name__ == "__main__":
    main()
