from __future__ import annotations

from pathlib import Path

import pytest
from tests.programs.machine import Machine, tiny_llm


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the Hub's cache with the tiny model as `team/tiny`, and beside it 32 sentences."""
    return tiny_llm(tmp_path_factory.mktemp("llm"), 32)
