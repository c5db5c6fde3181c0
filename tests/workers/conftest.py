from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.workers.fake_engine import FakeEngine
from tests.workers.world import World

from weft_core.settings import Settings
from weft_workers.context import Context, make_context
from weft_workers.observing import Ages, ObservedEngine
from weft_workers.reconcile import admit


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def context(settings: Settings, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    monkeypatch.setattr(admit, "REST", 0.0)  # no change has to wait for a sweeper because a pass was made just before
    # A step of a test is one step on a busy machine, too.
    monkeypatch.setattr(sys.modules["weft_workers.reconcile.step"], "_PATIENCE", 60.0)
    made = make_context(settings, "inst-test", {"local": engine}, connections=4)
    # Engines change between two lines of a test, so no observation is cached.
    yield replace(made, engines={"local": ObservedEngine(engine, "local", Ages(0, 0, 0))})
    made.close()


@pytest.fixture
def world(context: Context, engine: FakeEngine) -> World:
    return World(context, engine)
