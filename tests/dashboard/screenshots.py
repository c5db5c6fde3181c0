"""`make screenshots`: pictures of real runs: for the documentation in docs/screenshots/, and of all pages at three
sizes and in both themes in build/screenshots/, to be looked at."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ViewportSize, sync_playwright
from tests.dashboard.conftest import Theme, chromium
from tests.e2e.stack import REPOSITORY, Stack, eventually, manifest, running

TARGET = REPOSITORY / "docs/screenshots"
ALBUM = REPOSITORY / "build/screenshots"
_SIZES: dict[str, ViewportSize] = {
    "1440": {"width": 1440, "height": 900},
    "1024": {"width": 1024, "height": 768},
    "phone": {"width": 390, "height": 844},
}
_THEMES: tuple[Theme, ...] = ("light", "dark")
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
results = pathlib.Path(os.environ["RESULT_DIR"])
(results / "tb").mkdir(exist_ok=True)
(results / "tb/events.out.tfevents.1").write_bytes(pathlib.Path("events").read_bytes())
(results / "summary.json").write_text('{"accuracy": 0.98, "loss": 0.06}')
"""
BROKEN = """
print("\\x1b[33mloading\\x1b[0m checkpoints/epoch-3.pt", flush=True)
raise RuntimeError("\\x1b[31mCUDA out of memory\\x1b[0m: tried to allocate 2.50 GiB")
"""
NOTES = """\
The **baseline**: two learners, batch 64.

- accuracy above 0.98 after 300 steps
- `lr=0.3` diverged

| lr | accuracy |
|---:|---:|
| 0.1 | 0.98 |
| 0.3 | 0.11 |
"""
_LONG = "resnet50-imagenet-mixed-precision-cosine-warmup-large-batch-{n:02d}"
_WAITING = 30


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-screenshots-") as folder, running(Path(folder) / "home") as stack:
        small, job_id, failed, model = _runs(stack, Path(folder))
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
            album = {name: path for name, path, _, _ in pictures if name != "jobs-phone"}
            tabs = {tab: f"/jobs/{job_id}/{tab}" for tab in ("media", "system", "files", "events", "profiles")}
            others = {
                page: f"/{page}" for page in ("sweeps", "schedules", "models", "stores", "tokens", "audit", "admin")
            }
            _album(browser, profile, album | tabs | others | {"failed": f"/jobs/{failed}"})
            browser.close()


def _runs(stack: Stack, folder: Path) -> tuple[str, str, str, str]:
    """Some jobs in several states; returns two to compare, of which the second is the one to look at, one that has
    failed, and a model."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (code / "broken.py").write_text(BROKEN)
    shutil.copy(REPOSITORY / "dashboard/tests/pages/media/torch.tfevents", code / "events")
    labels = {"team": "vision", "data": "digits"}
    train = manifest("python train.py", name="digits-baseline", learners=2, labels=labels, description="Two learners")
    stores = [{"id": "s3", "datastore": "default", "training_results": {"container": "results", "model": "digits"}}]
    train["data_stores"] = stores
    small = stack.train(train | {"name": "digits-small", "learners": 1}, code).wait(timeout=900)
    first = stack.train(train, code).wait(timeout=900)
    first.edit(notes=NOTES)
    stack.client.models.edit("digits@latest", notes=NOTES)
    broken = stack.train(train | _command("python broken.py") | {"name": "digits-out-of-memory"}, code)
    eventually(lambda: broken.refresh().state == "FAILED", "the job fails")
    stack.train(train | {"name": "too-large-a-wish", "cpus": 512}, code)
    # One that holds all CPUs for as long as the pictures take, and some that wait for it.
    all_cpus = {"learners": 1, "cpus": stack.client.engines()[0].capacity["cpus"]}
    holds = stack.train(train | all_cpus | {"name": "digits-longer"} | _command("python train.py 1000"), code)
    eventually(lambda: holds.refresh().state == "PROCESSING", "the job runs")
    for name, priority in (("digits-larger", 50), ("digits-urgent", 90), ("digits-some-day", 10)):
        stack.train(train | all_cpus | {"name": name, "priority": priority}, code)
    many = {"team": "vision", "data": "imagenet", "stage": "ablation", "owner": "ada"}
    for n in range(_WAITING):
        stack.train(train | all_cpus | {"name": _LONG.format(n=n), "labels": many, "priority": 5}, code)
    return small.id, first.id, broken.id, "digits"


def _command(command: str) -> dict[str, Any]:
    return {"framework": {"name": "python", "version": "3.11", "command": command}}


def _album(browser: Browser, profile: dict[str, str], pages: dict[str, str]) -> None:
    ALBUM.mkdir(parents=True, exist_ok=True)
    with browser.new_context(base_url=profile["url"], reduced_motion="reduce") as context:
        context.request.post("/api/v1/session", data={"token": profile["token"]})
        page = context.new_page()
        for name, path in pages.items():
            page.goto(path)
            page.wait_for_timeout(1500)
            page.wait_for_function("() => !document.querySelector('.skeleton')", timeout=60_000)
            for theme in _THEMES:
                page.emulate_media(color_scheme=theme)
                for of, size in _SIZES.items():
                    page.set_viewport_size(size)
                    page.wait_for_timeout(300)  # charts are drawn anew
                    page.screenshot(path=ALBUM / f"{name}-{theme}-{of}.png")


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
