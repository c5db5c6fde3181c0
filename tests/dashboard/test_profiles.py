"""The profiles of a running job, in the browser."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.dashboard.conftest import faults
from tests.e2e.stack import Stack, eventually, manifest

from weft.errors import WeftError

PROGRAM = """
import pathlib, threading, time
def trains():
    while True:
        waits_for_data()
def waits_for_data():
    time.sleep(0.1)
threading.Thread(target=trains, name="reader").start()
pathlib.Path("ready").touch()
trains()
"""


def test_a_profile_is_a_flame_graph(page: Page, viewer: Page, stack: Stack, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    job = stack.train(manifest("python train.py", name="profiled", cpus=0.1), code)
    page.goto(f"/jobs/{job.id}/profiles")
    expect(page.get_by_text(f"weft profile {job.id}")).to_be_visible()
    eventually(lambda: job.refresh().state == "PROCESSING", "the job runs")

    def profiled() -> bool:
        with suppress(WeftError):  # the shell has not started Python yet
            return bool(job.profile(seconds=1).files)
        return False

    eventually(profiled, "a profile of its Python")

    viewer.goto(f"/jobs/{job.id}/profiles")
    graph = viewer.get_by_role("img", name=re.compile("^Flame graph of MainThread"))
    expect(graph).to_contain_text("waits_for_data (train.py:7)")
    expect(viewer.get_by_role("row", name=re.compile(r"^waits_for_data \(train\.py:7\)"))).to_be_visible()
    expect(viewer.get_by_role("button", name=re.compile("Record"))).to_have_count(0)
    viewer.get_by_role("combobox", name="Thread").select_option(label="reader")
    expect(viewer.get_by_role("img", name=re.compile("^Flame graph of reader"))).to_be_visible()
    with viewer.expect_download() as download:
        viewer.get_by_role("link", name="learner-1-process-1.stacks.txt").click()
    assert "waits_for_data (train.py:7)" in download.value.path().read_text()
    for width in (1280, 360):
        viewer.set_viewport_size({"width": width, "height": 740})
        expect(viewer.get_by_role("img", name=re.compile("^Flame graph"))).to_be_visible()
        assert viewer.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert faults(viewer) == []

    page.reload()
    expect(page.get_by_role("img", name=re.compile("^Flame graph of MainThread"))).to_contain_text("waits_for_data")
    page.get_by_role("button", name="Record 10 steps").click()
    expect(page.get_by_text("py-spy records 1 process for 30 s")).to_be_visible()
    job.halt(grace_seconds=0)
