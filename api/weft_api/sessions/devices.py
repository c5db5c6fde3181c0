"""The name of a session in the list of tokens: the browser and its system, in words that its user knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_BROWSERS: Final = (
    ("Edge", r"Edg(?:e|A|iOS)?/"),
    ("Opera", r"OPR/|Opera/"),
    ("Samsung Internet", r"SamsungBrowser/"),
    ("Firefox", r"Firefox/|FxiOS/"),
    ("Chromium", r"Chromium/"),
    ("Chrome", r"Chrome/|CriOS/|HeadlessChrome/"),
    ("Safari", r"Version/.*Safari/"),
)
"""The first that fits: most browsers also name those that they are made of."""
_SYSTEMS: Final = (
    ("Android", r"Android"),
    ("iPhone", r"iPhone"),
    ("iPad", r"iPad"),
    ("ChromeOS", r"CrOS"),
    ("Windows", r"Windows"),
    ("macOS", r"Mac OS X|Macintosh"),
    ("Linux", r"Linux|X11"),
)
_BRAND = re.compile(r'"([^"]{1,40})"\s*;\s*v=')
_MOST = 60


def device_of(headers: Mapping[str, str]) -> str:
    """For instance "Chromium on Linux". For a program that is no browser: the name that it gives itself."""
    agent = headers.get("user-agent", "")
    browser = _brand(headers.get("sec-ch-ua", "")) or _first(_BROWSERS, agent)
    if browser is None:
        name = "".join(character for character in agent.split(" ")[0] if character.isprintable())
        return name[:_MOST] or "browser"
    system = _first(_SYSTEMS, agent)
    return f"{browser} on {system}" if system else browser


def _brand(brands: str) -> str | None:
    """Of Chromium's relatives, which name themselves in a header of their own, beside one name that no browser has."""
    found: list[str] = [name for name in _BRAND.findall(brands) if "brand" not in name.lower() and name.isascii()]
    own = [name for name in found if name != "Chromium"]
    return next(iter(own or found), None)


def _first(patterns: tuple[tuple[str, str], ...], agent: str) -> str | None:
    return next((name for name, pattern in patterns if re.search(pattern, agent)), None)
