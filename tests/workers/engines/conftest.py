from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workers.engines.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A home with a local engine. A test that leaves a process behind fails."""
    made = Bench(tmp_path)
    yield made
    made.close()
