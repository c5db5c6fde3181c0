"""Each promise of docs/security.md has tests, and they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PROMISES = dict(
    re.findall(
        r"^\| (.+?) \| (`tests/.+) \|$",
        (_ROOT / "docs/security.md").read_text(encoding="utf-8").partition("## Promises and their tests")[2],
        re.MULTILINE,
    )
)


def test_the_table_is_read() -> None:
    page = (_ROOT / "docs/security.md").read_text(encoding="utf-8")
    table = page.partition("## Promises and their tests")[2].partition("\n## ")[0]
    assert len(_PROMISES) == table.count("\n| ") - 1, "each row but the head is a promise with a test"


@pytest.mark.parametrize("promise", _PROMISES)
def test_the_tests_of_a_promise_exist(promise: str) -> None:
    named = _PROMISES[promise].split(", ")
    for test in named:
        found = re.fullmatch(r"`(tests/[\w/.]+)(?:::(\w+))?`", test)
        assert found, test
        path, name = _ROOT / found[1], found[2]
        assert list(path.glob("**/test_*.py")) if path.is_dir() else path.is_file(), test
        if name:
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}, test
