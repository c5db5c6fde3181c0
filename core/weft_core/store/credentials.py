"""Credentials of data stores, in the form in which they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from weft_core.manifest import Credentials
from weft_core.secrets import SecretBox


def seal(box: SecretBox, credentials: Credentials) -> bytes:
    """Credentials in the form in which a secret stores them."""
    return box.encrypt(json.dumps(asdict(credentials)))


def unseal(box: SecretBox, ciphertext: bytes) -> Credentials:
    """The inverse of :func:`seal`. Raises SecretsUnreadable."""
    return _credentials(json.loads(box.decrypt(ciphertext)))


def seal_all(box: SecretBox, credentials: Mapping[str, Credentials]) -> bytes | None:
    """All credentials of a manifest, by the id of the data store; None: there are none."""
    if not credentials:
        return None
    return box.encrypt(json.dumps({store: asdict(kept) for store, kept in credentials.items()}))


def unseal_all(box: SecretBox, ciphertext: bytes | None) -> dict[str, Credentials]:
    """The inverse of :func:`seal_all`. Raises SecretsUnreadable."""
    if ciphertext is None:
        return {}
    return {store: _credentials(kept) for store, kept in json.loads(box.decrypt(ciphertext)).items()}


def _credentials(kept: Mapping[str, str | None]) -> Credentials:
    return Credentials(kept["user_name"] or "", kept["password"] or "", kept.get("session_token"), kept.get("ca"))
