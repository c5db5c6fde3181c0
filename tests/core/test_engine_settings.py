"""Checks of engines' settings beyond their types."""

from __future__ import annotations

from typing import Any

import pytest

from weft_core.engine_settings import LocalSettings


def test_reachable_and_users_are_taken() -> None:
    settings = LocalSettings(reachable=["localhost:9000", "[::1]:80"], users=[20_000, 29_999])
    assert (settings.reachable, settings.users) == (["localhost:9000", "[::1]:80"], [20_000, 29_999])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reachable": ["localhost"]}, "expected HOST:PORT such as localhost:9000"),
        ({"reachable": ["localhost:0"]}, "expected HOST:PORT such as localhost:9000"),
        ({"reachable": ["localhost:70000"]}, "expected HOST:PORT such as localhost:9000"),
        ({"reachable": ["http://localhost:80"]}, "expected HOST:PORT such as localhost:9000"),
        ({"users": [3, 2]}, r"expected the first and the last user id, such as \[20000, 29999\]"),
        ({"users": [0, 2]}, "expected the first and the last user id"),
        ({"users": [20_000]}, "expected the first and the last user id"),
    ],
)
def test_other_forms_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        LocalSettings(**given)
