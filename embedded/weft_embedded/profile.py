"""This installation in the CLI's profile file, so that ``weft list`` works at once.

The file is the CLI's: the CLI's own module reads and writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.errors import ConfigurationError
from weft.profile import profile_path, read_profiles, write_profile
from weft_embedded.home import Home


def own_token(home: Home) -> str | None:
    """The token in the home's own profile."""
    try:
        return read_profiles(home.client_profile).get("default", {}).get("token")
    except ConfigurationError:
        return None


def write_own(home: Home, url: str, token: str) -> None:
    """``client.toml`` in the home: the file for ``WEFT_PROFILE_FILE``, independent of the user's own file. A broken
    file is replaced, as it is Weft's own."""
    try:
        write_profile(home.client_profile, "default", url, token)
    except ConfigurationError:
        home.client_profile.unlink(missing_ok=True)
        write_profile(home.client_profile, "default", url, token)


def write_users(home: Home, url: str, token: str) -> str | None:
    """Bring this installation into the user's profile file; returns a hint when it isn't the default there."""
    path = profile_path()
    try:
        profiles = read_profiles(path)
        name = _name_for(home, profiles, url, token)
        if profiles.get(name) != {"url": url, "token": token}:
            write_profile(path, name, url, token)
    except ConfigurationError as error:
        return f"{error}. It is left as it is: use WEFT_PROFILE_FILE={home.client_profile}"
    if name == "default":
        return None
    return f"the CLI's default profile points at {profiles['default'].get('url')}: use `export WEFT_PROFILE={name}`"


def _name_for(home: Home, profiles: Mapping[str, Mapping[str, str]], url: str, token: str) -> str:
    """The profile that is this installation's already, else `default`, else one named after the home."""
    for name, profile in profiles.items():
        if profile.get("token") == token or profile.get("url", "").rstrip("/") == url:
            return name
    if "default" not in profiles:
        return "default"
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", home.path.name).strip("-") or "weft"
    numbered = (base if n == 1 else f"{base}-{n}" for n in range(1, len(profiles) + 2))
    return next(name for name in numbered if name not in profiles)
