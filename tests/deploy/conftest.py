"""Fixtures of the chart's tests."""

from __future__ import annotations

import pytest
from tests.deploy.chart import CASES, Rendered, render
from tests.kubernetes.fixtures import kube

__all__ = ["kube"]


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest) -> Rendered:
    """The chart with the values of each case."""
    return render(CASES[request.param])
