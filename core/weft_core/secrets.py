"""Secrets at rest: Fernet (AES-128-CBC with HMAC-SHA256, authenticated) under keys that can be rotated.

``python -m weft_core.secrets`` prints a fresh key; ``python -m weft_core.store.rotate`` moves all stored secrets to the
first of ``secret_keys``, after which the others can be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import SecretStr


class SecretsUnreadable(Exception):
    """Raised when no configured key opens a ciphertext."""


class SecretBox:
    """Encrypts with the first key, decrypts with any.

    Raises:
        ValueError: no key, or one that is not 32 bytes of URL-safe base64.
    """

    def __init__(self, keys: Sequence[SecretStr]) -> None:
        if not keys:
            raise ValueError(
                "secret_keys is empty: set it to at least one key (`python -m weft_core.secrets` prints one)"
            )
        try:
            self._fernet = MultiFernet([Fernet(key.get_secret_value()) for key in keys])
        except ValueError as error:
            raise ValueError(
                "secret_keys: a key must be 32 bytes as URL-safe base64 (`python -m weft_core.secrets`)"
            ) from error

    def encrypt(self, plain: str) -> bytes:
        return self._fernet.encrypt(plain.encode())

    def decrypt(self, ciphertext: bytes) -> str:
        """Raises SecretsUnreadable when none of the keys fits or the ciphertext was tampered with."""
        try:
            return self._fernet.decrypt(ciphertext).decode()
        except InvalidToken as error:
            raise SecretsUnreadable("a stored secret can't be read with the configured secret_keys") from error

    def rotate(self, ciphertext: bytes) -> bytes:
        """The same secret under the first key. Raises SecretsUnreadable."""
        try:
            return self._fernet.rotate(ciphertext)
        except InvalidToken as error:
            raise SecretsUnreadable("a stored secret can't be read with the configured secret_keys") from error


def generate_key() -> str:
    return Fernet.generate_key().decode()


if __name__ == "__main__":
    print(generate_key())
