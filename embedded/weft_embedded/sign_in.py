"""A link that signs a browser in, asked of our own API with the token in the home's profile."""

from __future__ import annotations

import json
from shlex import quote

from weft_embedded import probe, profile
from weft_embedded.stack import Stack

_PATIENCE = 10.0  # seconds; the API has answered a moment ago


def invitation(stack: Stack, *, logged: bool = False) -> str:
    """One line for people: a fresh link, or the command that prints one.

    Args:
        logged: the output is kept, so it must not contain a link.
    """
    command = f"`WEFT_PROFILE_FILE={quote(str(stack.home.client_profile))} weft login --browser`"
    if logged:
        return f"{command} prints a link that signs a browser in"
    try:
        return f"sign in once, within 10 minutes: {stack.public_url.rstrip('/')}{_path(stack)}"
    except (OSError, ValueError, KeyError) as error:
        return f"there is no sign-in link just now ({error}); {command} prints one"


def _path(stack: Stack) -> str:
    """Raises OSError, ValueError or KeyError when there is none."""
    headers = {"Authorization": f"Bearer {profile.own_token(stack.home)}"}
    status, body = probe.http_request("POST", f"{stack.local_url}/api/v1/session/links", headers, _PATIENCE)
    if status != 201:
        raise OSError(f"HTTP {status}")
    return str(json.loads(body)["path"])
