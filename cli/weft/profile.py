"""Which server, and who am I there: flags > ``WEFT_…`` > ``DLAAS_…`` > the profile file.

A token goes only to the server that it was given for: one that stands beside another URL is never sent.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from weft.errors import ConfigurationError

TOKEN_PREFIX = "weft_"  # noqa: S105 - what tokens begin with


@dataclass(frozen=True)
class Server:
    """Where to talk to and how to sign in: with a token, else by user and password. ``source`` says who named it."""

    url: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    source: str = ""


def normalise_url(url: str) -> str:
    """The server's base URL: no slash at its end, without ``/api/v1`` or FfDL's ``/v1``.

    Raises:
        ConfigurationError: it is no http or https URL.
    """
    url = url.strip()
    if "://" not in url:
        url = "http://" + url
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or any(c.isspace() for c in url) or parts.query:
        raise ConfigurationError(f"{url!r} is no server URL; expected something like https://weft.example.com")
    if parts.username is not None:
        raise ConfigurationError("the server's URL must not hold a user name or password; use `weft login`")
    url = url.rstrip("/")
    for suffix in ("/api/v1", "/v1"):
        url = url.removesuffix(suffix)
    return url


def profile_path(environ: Mapping[str, str] = os.environ) -> Path:
    """``$WEFT_PROFILE_FILE``, else ``weft/config.toml`` under ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if named := environ.get("WEFT_PROFILE_FILE"):
        return Path(named).expanduser()
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "weft" / "config.toml"


def read_profiles(path: Path) -> dict[str, dict[str, str]]:
    """All profiles by name; none when the file is missing.

    Raises:
        ConfigurationError: the file can't be read, or is not as expected.
    """
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the profile file {path} can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the profile file {path} is no TOML: {error}") from error
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise ConfigurationError(f"the profile file {path} must hold tables such as [profiles.default]")
    return {name: {k: v for k, v in one.items() if isinstance(v, str)} for name, one in profiles.items()}


def write_profile(path: Path, name: str, url: str, token: str | None) -> None:
    """Set one profile and keep the others; the file is readable by its owner only and replaced atomically.

    Raises:
        ConfigurationError: it can't be written.
    """
    profiles = read_profiles(path)
    profiles[name] = {"url": url, **({"token": token} if token else {})}
    lines = ["# Written by Weft. Holds tokens: keep it to yourself."]
    for key, values in profiles.items():
        lines += ["", f"[profiles.{key if re.fullmatch('[A-Za-z0-9_-]+', key) else json.dumps(key)}]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in values.items()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp makes the file with mode 0600, so that the token is never readable by others, not even for a moment.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigurationError(f"the profile file {path} can't be written: {error}") from error


def resolve(
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Server:
    """The server to talk to.

    Args:
        url: wins over all else.
        token: wins over all else.
        profile: the profile's name; wins over the environment's URL and token.

    Raises:
        ConfigurationError: nobody says where the server is, or the profile is missing or broken.
    """
    path = profile_path(environ)
    profiles = read_profiles(path)
    if profile and profile not in profiles:
        known = ", ".join(sorted(profiles)) or "none yet"
        raise ConfigurationError(f"{path} has no profile {profile!r}; it has: {known}. `weft login` makes one.")
    name = profile or environ.get("WEFT_PROFILE") or "default"
    named = [] if profile else _from_environment(environ)
    stored = {
        key: Server(normalise_url(one["url"]), one.get("token"), source=f"profile {key!r} in {path}")
        for key, one in profiles.items()
        if "url" in one
    }
    if url is not None:
        chosen = Server(normalise_url(url), source="--url")
    elif named:
        chosen = named[0]
    elif name in stored:
        chosen = stored[name]
    else:
        raise ConfigurationError(
            "no server is known: run `weft login URL`, or set WEFT_URL and WEFT_TOKEN, "
            "or start one on this machine with `weft up`"
        )
    if token is None and profile is None and normalise_url(environ.get("WEFT_URL") or chosen.url) == chosen.url:
        token = environ.get("WEFT_TOKEN")
    if token:
        return replace(chosen, token=_checked(token), user=None, password=None)
    # Any place that knows how to sign in at this very URL will do; the chosen profile first.
    for one in [chosen, *named, *([stored[name]] if name in stored else []), *stored.values()]:
        if one.url == chosen.url and (one.token or one.user):
            return replace(one, token=_checked(one.token) if one.token else None, source=chosen.source)
    return chosen


def _from_environment(environ: Mapping[str, str]) -> list[Server]:
    found = []
    if named := environ.get("WEFT_URL"):
        found.append(Server(normalise_url(named), source="WEFT_URL"))
    if named := environ.get("DLAAS_URL"):
        user, password = environ.get("DLAAS_USERNAME"), environ.get("DLAAS_PASSWORD")
        before, scheme, rest = named.rpartition("://")
        own, at, host = rest.rpartition("@")
        if at:  # as FfDL's client had it: they stand in the URL and win
            named = f"{before}{scheme}{host}"
            user, password = (unquote(part) for part in (*own.split(":", 1), "")[:2])
        if user and user.startswith(TOKEN_PREFIX):
            found.append(Server(normalise_url(named), user, source="DLAAS_URL"))
        else:
            found.append(Server(normalise_url(named), None, user, password, source="DLAAS_URL"))
    return found


def _checked(token: str) -> str:
    # A header can carry nothing else; a pasted line break or quote must not end in an obscure transport error.
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token holds characters that no Weft token has; copy it again")
    return token
