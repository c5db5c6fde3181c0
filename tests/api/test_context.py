"""Objects that all requests share: made once for each application, closed at shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from weft_api.app import make_context
from weft_api.context import Context, Shared
from weft_core.settings import S3Settings, Settings


@pytest.fixture
def context() -> Context:
    """Of servers that are not there: nothing connects to them."""
    return _context()


def _context() -> Context:
    settings = Settings(
        database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"),
        redis_url=SecretStr("redis://127.0.0.1:1"),
        secret_keys=[SecretStr(Fernet.generate_key().decode())],
        s3=S3Settings(endpoint="http://127.0.0.1:1", access_key="none", secret_key=SecretStr("none"), bucket="none"),
    )
    return make_context(settings)


def test_threads_that_ask_at_the_same_time_get_the_same_object(context: Context) -> None:
    made: list[object] = []

    def make(_: Context) -> object:
        time.sleep(0.05)  # the other threads ask meanwhile
        made.append(object())
        return made[-1]

    shared = Shared(make)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: shared.of(context), range(8)))
    assert found == set(made)
    assert len(made) == 1


def test_applications_have_objects_of_their_own(context: Context) -> None:
    shared = Shared(lambda context: [context])
    assert shared.of(context) == [context]
    assert shared.of(_context()) is not shared.of(context)


def test_what_was_made_is_closed_in_reverse_order_and_nothing_else(context: Context) -> None:
    closed: list[str] = []

    def slowly(name: str) -> Callable[[str], Awaitable[None]]:
        async def close(_: str) -> None:
            await asyncio.sleep(0)
            closed.append(name)

        return close

    lower = Shared(lambda _: "lower", closed.append)
    upper = Shared(lambda context: f"above {lower.of(context)}", slowly("upper"))
    Shared(lambda _: "nobody asks for it", closed.append)
    without_close = Shared(lambda _: "cache")
    assert without_close.of(context) == "cache"
    assert upper.of(context) == "above lower"
    asyncio.run(context.close())
    assert closed == ["upper", "lower"]
