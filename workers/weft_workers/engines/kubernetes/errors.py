"""Errors of kubelets and container runtimes, in words for users. Pure."""

from __future__ import annotations

import re

_THROUGH = re.compile(  # the programs that an error went through, each of which has put words before it
    r"Back-off pulling image \S+?: |(ErrImagePull|RegistryUnavailable|SignatureValidationFailed): |"
    r".*?\brpc error: code = \w+ desc = |"
    r"failed to (pull and unpack|resolve|pull) (image|reference) \\?\"[^\"]*\": |"
    r"unable to pull image( or OCI artifact)?: |pull image err: |initializing source \S+: |"
    r"Error response from daemon: |"
    r"image pull failed for \S+ because ",
    re.IGNORECASE,
)


def pull_error(message: str, event: str, image: str) -> str:
    """The image and why it can't be pulled."""
    cause = brief(message)
    if cause.startswith("Back-off"):  # older kubelets keep the cause to their events while they wait to try again
        cause = brief(event.removeprefix("Failed: ")) if event.startswith("Failed: ") else ""
    if image in cause:
        return cause
    return f"{image}: {cause}" if cause else image


def brief(message: str) -> str:
    """An error without the programs that it went through."""
    text = " ".join(message.split())
    while (found := _THROUGH.match(text)) and found.end() < len(text):
        text = text[found.end() :]
    return text if len(text) <= 300 else f"{text[:299]}…"
