"""The server and the credentials: from flags, ``WEFT_…``, ``DLAAS_…``, or the profile file, in this order.

A token goes only to the server that it was given for. A token for another URL is never sent.
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
    """A server and the credentials: a token, or a user and a password. ``source`` says where the URL comes from."""

    url: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    source: str = ""


def normalise_url(url: str) -> str:
    """The base URL of the server, without a slash, ``/api/v1`` or FfDL's ``/v1`` at its end.

    Raises:
        ConfigurationError: it is not an http or https URL.
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
        raise ConfigurationError(f"{url!r} is not the URL of a server; expected a URL such as https://weft.example.com")
    if parts.username is not None:
        raise ConfigurationError("the server's URL must not hold a user name or password; use `weft login`")
    url = url.rstrip("/")
    for suffix in ("/api/v1", "/v1"):
        url = url.removesuffix(suffix)
    return url


def profile_path(environ: Mapping[str, str] = os.environ) -> Path:
    """``$WEFT_PROFILE_FILE``, or else ``weft/config.toml`` under ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if named := environ.get("WEFT_PROFILE_FILE"):
        return Path(named).expanduser()
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "weft" / "config.toml"


def read_profiles(path: Path) -> dict[str, dict[str, str]]:
    """All profiles by name; empty if the file is missing.

    Raises:
        ConfigurationError: the file can't be read, or is invalid.
    """
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the profile file {path} can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the profile file {path} is not TOML: {error}") from error
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(values, dict) for values in profiles.values()):
        raise ConfigurationError(f"the profile file {path} must have tables such as [profiles.default]")
    return {name: {k: v for k, v in values.items() if isinstance(v, str)} for name, values in profiles.items()}


def write_profile(path: Path, name: str, url: str, token: str | None) -> None:
    """Set one profile and keep the others. Only the owner can read the file, which is replaced atomically.

    Raises:
        ConfigurationError: the file can't be written.
    """
    profiles = read_profiles(path)
    profiles[name] = {"url": url, **({"token": token} if token else {})}
    lines = ["# Written by Weft. It contains tokens: keep it secret."]
    for key, values in profiles.items():
        lines += ["", f"[profiles.{key if re.fullmatch('[A-Za-z0-9_-]+', key) else json.dumps(key)}]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in values.items()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # mkstemp creates the file with mode 0600, so that other users can never read the token.
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
    """The server for the given arguments and the environment.

    Args:
        url: has the highest priority.
        token: has the highest priority.
        profile: name of the profile; has a higher priority than the URL and the token of the environment.

    Raises:
        ConfigurationError: no server is known, or the profile is missing or invalid.
    """
    path = profile_path(environ)
    profiles = read_profiles(path)
    if profile and profile not in profiles:
        known = ", ".join(sorted(profiles)) or "none yet"
        raise ConfigurationError(f"{path} has no profile {profile!r}; it has: {known}. `weft login` creates one.")
    name = profile or environ.get("WEFT_PROFILE") or "default"
    named = [] if profile else _from_environment(environ)
    stored = {
        key: Server(normalise_url(values["url"]), values.get("token"), source=f"profile {key!r} in {path}")
        for key, values in profiles.items()
        if "url" in values
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
    # Any source with credentials for this URL will do; the chosen profile comes first.
    for server in [chosen, *named, *([stored[name]] if name in stored else []), *stored.values()]:
        if server.url == chosen.url and (server.token or server.user):
            return replace(server, token=_checked(server.token) if server.token else None, source=chosen.source)
    return chosen


def _from_environment(environ: Mapping[str, str]) -> list[Server]:
    found = []
    if named := environ.get("WEFT_URL"):
        found.append(Server(normalise_url(named), source="WEFT_URL"))
    if named := environ.get("DLAAS_URL"):
        user, password = environ.get("DLAAS_USERNAME"), environ.get("DLAAS_PASSWORD")
        before, scheme, rest = named.rpartition("://")
        own, at, host = rest.rpartition("@")
        if at:  # as in FfDL's client: credentials in the URL have priority
            named = f"{before}{scheme}{host}"
            user, password = (unquote(part) for part in (*own.split(":", 1), "")[:2])
        if user and user.startswith(TOKEN_PREFIX):
            found.append(Server(normalise_url(named), user, source="DLAAS_URL"))
        else:
            found.append(Server(normalise_url(named), None, user, password, source="DLAAS_URL"))
    return found


def _checked(token: str) -> str:
    # A header can't contain other characters. A pasted line break must not cause an obscure transport error.
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token has characters that no Weft token has; copy it again")
    return token
