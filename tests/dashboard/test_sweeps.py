"""The pages of sweeps: the list, and one sweep with its trials. The trials run elsewhere, so they need no learner."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.dashboard.conftest import HOSTILE, faults, is_drawn
from tests.e2e.stack import Stack, manifest


def test_a_sweep_shows_its_trials_and_the_best_one_and_is_stopped(page: Page, viewer: Page, stack: Stack) -> None:
    parameters = {"lr": {"log": [1e-4, 1e-1]}, "kind": [HOSTILE, "plain"]}
    search = {"parameters": parameters, "metric": "val/accuracy", "goal": "max", "trials": 9, "search": "manual"}
    sweep = stack.client.sweep(manifest("true", name=HOSTILE, sweep=search), None)
    for lr, kind, value in ((0.01, "plain", 0.7), (0.1, HOSTILE, 0.9), (0.001, "plain", 0.8)):
        trial = stack.client.sweeps.ask(sweep.id, {"lr": lr, "kind": kind}, run=False)
        stack.client.sweeps.tell(sweep.id, trial.number, value)

    page.goto("/sweeps")
    row = page.get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text(re.compile(r"3 of 9.*val/accuracy.*0\.9"))
    row.get_by_role("link").click()
    expect(page.get_by_role("region", name="Best trial")).to_contain_text(re.compile(r"0\.9.*lr.*0\.1"))
    is_drawn(page.get_by_role("region", name="val/accuracy by trial"))
    trials = page.get_by_role("region", name="Table of trials").get_by_role("row")
    expect(trials.locator("td:nth-child(3)")).to_have_text(["0.9", "0.8", "0.7"])
    page.get_by_role("button", name="By number").click()
    expect(trials.locator("td:nth-child(3)")).to_have_text(["0.7", "0.9", "0.8"])
    expect(page).to_have_url(re.compile(r"\?sort=number"))
    # A new trial appears by itself.
    stack.client.sweeps.ask(sweep.id, {"lr": 0.02, "kind": "plain"}, run=False)
    expect(trials).to_have_count(5)
    assert faults(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    viewer.goto(f"/sweeps/{sweep.id}")
    expect(viewer.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(viewer.get_by_role("button", name=re.compile("Pause|Resume|Stop|Delete"))).to_have_count(0)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".page-head .state")).to_have_text("PAUSED")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".page-head .state")).to_have_text("STOPPED")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile(r"/sweeps$"))
    expect(page.get_by_role("row").filter(has_text=HOSTILE)).to_have_count(0)
    page.goto("/sweeps/swp-nothing")
    expect(page.get_by_role("heading", name="There is no such sweep")).to_be_visible()
