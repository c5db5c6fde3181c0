"""Input of secrets: by a prompt or on stdin. Arguments would appear in the history of the shell and in `ps`."""

from __future__ import annotations

import sys

import typer

from weft.errors import WeftError


def ask_secret(label: str) -> str:
    """The hidden input of the user, or all of stdin if it is not a terminal (without the newline at the end).

    Raises:
        WeftError: it is empty.
    """
    if sys.stdin.isatty():
        value = str(typer.prompt(label, hide_input=True, err=True))
    else:
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not value:
        raise WeftError(f"{label[:1].lower()}{label[1:]}: expected on stdin, found nothing")
    return value
