"""Secrets come by a prompt or by stdin, never as arguments: those stand in the shell's history and in `ps`."""

from __future__ import annotations

import sys

import typer

from weft.errors import WeftError


def ask_secret(label: str) -> str:
    """What the user types unseen, or all of stdin when that is no terminal (without the newline at its end).

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
