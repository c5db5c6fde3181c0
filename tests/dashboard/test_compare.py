"""As many jobs beside each other as may be. The API alone serves the page: agents' calls make the jobs' lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.api.conftest import Api, Person, api, api_settings
from tests.dashboard.conftest import Site, faults, sign_in, visiting

__all__ = ["api", "api_settings"]  # fixtures

_MANIFEST = """
name: lr-{n}
labels: {{sweep: lr}}
framework: {{name: pytorch, command: python train.py {n}}}
"""


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def context(browser: Browser, api: Api, ann: Person) -> Iterator[BrowserContext]:
    with visiting(browser, Site(api.url, ann.token)) as context:
        sign_in(context, token=ann.token)
        yield context


def _trained(api: Api, person: Person, n: int) -> None:
    """A job that has reported eight losses and completed."""
    job = person.submit(_MANIFEST.format(n=n))["id"]
    [agent] = api.attempt(job).agents
    agent.start()
    losses = [
        {"t": step, "kind": "user", "group": "", "etimes": {"iteration": step}, "values": {"loss": n / step}}
        for step in range(1, 9)
    ]
    answer = agent.post("metrics", sequence=1, records=losses)
    assert answer.status_code == 204, answer.text
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job, state)


def test_as_many_jobs_as_may_be_are_compared(page: Page, api: Api, ann: Person) -> None:
    for n in range(1, 11):
        _trained(api, ann, n)
    page.goto("/?label=sweep%3Dlr")
    page.get_by_role("checkbox", name="Select all").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region", name="The jobs").get_by_role("row")).to_have_count(11)
    expect(page.get_by_role("region", name="The jobs").get_by_role("cell", name="–")).to_have_count(0)
    chart = page.get_by_role("region", name="loss", exact=True)
    chart.scroll_into_view_if_needed()
    expect(chart.get_by_role("listitem")).to_have_count(10)
    values = page.get_by_role("region", name="Metrics: last, smallest and largest value")
    for n in range(1, 11):
        expect(values).to_contain_text(f"lr-{n}")
    assert faults(page) == []
