from __future__ import annotations

import pytest
from tests.api.conftest import Api, Person
from tests.api.ffdl.wire import Wire


@pytest.fixture
def wire(api: Api, ann: Person) -> Wire:
    """Ann's old client, with her token as DLAAS_USERNAME."""
    return Wire(api.url, ann.token)
