"""The limit of a body: 1 MiB, unless the route allows more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api.conftest import Person, code_of

_TOO_LONG = 1_100_000


def _stream() -> Iterator[bytes]:
    for _ in range(_TOO_LONG // 10_000):
        yield b" " * 10_000


@pytest.mark.parametrize("announced", [True, False], ids=["with a length", "without a length"])
def test_a_body_beyond_the_limit_is_refused(ann: Person, announced: bool) -> None:
    content = b" " * _TOO_LONG if announced else _stream()
    answer = ann.http.post("/api/v1/tokens", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (413, "too_large")
    assert answer.json()["detail"] == "the body of this request may have 1048576 bytes (1.0 MiB)"
    assert answer.headers["connection"] == "close"


def test_a_body_of_the_ffdl_api_is_refused_in_its_form(ann: Person) -> None:
    answer = ann.http.patch("/v1/models/job-000000000000", content=b" " * _TOO_LONG)
    assert (answer.status_code, answer.json()["code"]) == (413, 413)
