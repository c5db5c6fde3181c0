"""The API alone serves the page, to a user with a project of their own. A module imports these fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext
from tests.api.conftest import Api, Person
from tests.dashboard.conftest import Site, sign_in, visiting


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def context(browser: Browser, api: Api, ann: Person) -> Iterator[BrowserContext]:
    with visiting(browser, Site(api.url, ann.token)) as made:
        sign_in(made, token=ann.token)
        yield made
