"""Identifiers: short, unguessable, and valid as parts of a DNS label (Kubernetes names, S3 keys)."""

from __future__ import annotations

import secrets

# Crockford's base 32 in lower case: no i, l, o, u, so an id read aloud or retyped stays the same.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str, length: int = 12) -> str:
    """A fresh random id such as ``job-4k9x2m7qd1ze`` (60 bits for the default length)."""
    return prefix + "-" + "".join(secrets.choice(_ALPHABET) for _ in range(length))


def run_name(job_id: str, attempt: int) -> str:
    """The deterministic name of an attempt's object on its engine: ``weft-<job>-<n>``."""
    return f"weft-{job_id}-{attempt}"
