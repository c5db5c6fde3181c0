"""A stack for the tests that only use it, and one a test for those that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from tests.e2e.stack import Stack, running


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for all tests that leave it as they found it."""
    with running(tmp_path_factory.mktemp("stack") / "home") as started:
        yield started


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Starts a stack for this test alone, with these settings."""
    with ExitStack() as opened:

        def start(**environment: str) -> Stack:
            context: AbstractContextManager[Stack] = running(tmp_path / "home", environment)
            return opened.enter_context(context)

        yield start
