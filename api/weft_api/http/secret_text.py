"""Passwords, tokens and other secrets in bodies."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, SecretStr


def _is_text(secret: SecretStr) -> SecretStr:
    """JSON's escapes can write half of a surrogate pair, which is no text and can be neither hashed nor stored."""
    try:
        secret.get_secret_value().encode()
    except UnicodeEncodeError:
        raise ValueError("must be text, and has half of a surrogate pair") from None
    return secret


SecretText = Annotated[SecretStr, AfterValidator(_is_text)]
