"""The names of browsers' sessions."""

from __future__ import annotations

import pytest

from weft_api.sessions.devices import device_of

_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
_CHROME = f"Mozilla/5.0 (X11; Linux x86_64) {_WEBKIT} Chrome/125.0.0.0 Safari/537.36"


@pytest.mark.parametrize(
    ("agent", "device"),
    [
        (_CHROME, "Chrome on Linux"),
        (f"{_CHROME} Edg/125.0.0.0".replace("X11; Linux x86_64", "Windows NT 10.0; Win64"), "Edge on Windows"),
        ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:126.0) Gecko/20100101 Firefox/126.0", "Firefox on Linux"),
        (f"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) {_WEBKIT} Version/17.5 Safari/605.1", "Safari on macOS"),
        (
            f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5) {_WEBKIT} CriOS/125.0 Safari/604.1",
            "Chrome on iPhone",
        ),
        ("python-httpx/0.28.1", "python-httpx/0.28.1"),
        ("x\x00" + "y" * 200, "x" + "y" * 59),
        ("", "browser"),
    ],
)
def test_a_session_is_named_after_its_device(agent: str, device: str) -> None:
    assert device_of({"user-agent": agent}) == device


@pytest.mark.parametrize(
    ("brands", "device"),
    [
        ('"Chromium";v="125", "Not.A/Brand";v="24"', "Chromium on Linux"),
        ('"Google Chrome";v="125", "Chromium";v="125", "Not.A/Brand";v="24"', "Google Chrome on Linux"),
        ("nothing of the kind", "Chrome on Linux"),
    ],
)
def test_a_brand_says_more_than_the_user_agent(brands: str, device: str) -> None:
    assert device_of({"user-agent": _CHROME, "sec-ch-ua": brands}) == device
