"""The CLI's profile of this installation, so that ``weft list`` works at once. The format is the CLI's own."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

from weft_embedded.files import write_private
from weft_embedded.home import Home

Profiles = dict[str, dict[str, str]]


def user_file() -> Path:
    """``$WEFT_PROFILE_FILE``, else ``weft/config.toml`` under ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if named := os.environ.get("WEFT_PROFILE_FILE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "weft" / "config.toml"


def read(path: Path) -> Profiles:
    """The profiles by name; none when the file is missing.

    Raises:
        ValueError: it is no profile file.
    """
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8")).get("profiles", {})
    except FileNotFoundError:
        return {}
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise ValueError("it must hold tables such as [profiles.default]")
    return {name: {key: str(value) for key, value in one.items()} for name, one in profiles.items()}


def own_token(home: Home) -> str | None:
    """The token in the home's own profile."""
    try:
        return read(home.client_profile).get("default", {}).get("token")
    except (OSError, ValueError):
        return None


def write_own(home: Home, url: str, token: str) -> None:
    """``client.toml`` in the home: what ``WEFT_PROFILE_FILE`` may name, whatever the user's own file says."""
    write_private(home.client_profile, _toml({"default": {"url": url, "token": token}}))


def write_users(home: Home, url: str, token: str) -> str | None:
    """Bring this installation into the user's profile file; returns a hint when it isn't the default there."""
    path = user_file()
    try:
        profiles = read(path)
        name = _name_for(home, profiles, url, token)
        wanted = {"url": url, "token": token}
        if profiles.get(name) != wanted:
            profiles[name] = wanted
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, _toml(profiles))
    except (OSError, ValueError) as error:
        return f"the CLI's profile file {path} is left as it is: {error}. Use WEFT_PROFILE_FILE={home.client_profile}"
    if name == "default":
        return None
    return f"the CLI's default profile points at {profiles['default'].get('url')}: use `export WEFT_PROFILE={name}`"


def _name_for(home: Home, profiles: Profiles, url: str, token: str) -> str:
    """The profile that is this installation's already, else `default`, else one named after the home."""
    for name, profile in profiles.items():
        if profile.get("token") == token or profile.get("url", "").rstrip("/") == url:
            return name
    if "default" not in profiles:
        return "default"
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", home.path.name).strip("-") or "weft"
    numbered = (base if n == 1 else f"{base}-{n}" for n in range(1, len(profiles) + 2))
    return next(name for name in numbered if name not in profiles)


def _toml(profiles: Profiles) -> str:
    lines = ["# Written by Weft. Holds tokens: keep it to yourself."]
    for name, profile in profiles.items():
        lines += ["", f"[profiles.{name if re.fullmatch('[A-Za-z0-9_-]+', name) else json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in profile.items()]
    return "\n".join(lines) + "\n"
