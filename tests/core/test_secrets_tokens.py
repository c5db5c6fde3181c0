"""Secrets with keys that rotate, tokens and passwords that are kept as hashes only."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from weft_core import secrets, tokens
from weft_core.secrets import SecretBox, SecretsUnreadable


def box(*keys: str) -> SecretBox:
    return SecretBox([SecretStr(key) for key in keys])


def test_rotation_moves_a_secret_to_the_new_key() -> None:
    old, new = secrets.generate_key(), secrets.generate_key()
    stored = box(old).encrypt("geheim €")
    rotated = box(new, old).rotate(stored)
    assert box(new).decrypt(rotated) == "geheim €"
    with pytest.raises(SecretsUnreadable):
        box(new).decrypt(stored)


def test_a_changed_ciphertext_is_refused() -> None:
    key = secrets.generate_key()
    stored = bytearray(box(key).encrypt("x"))
    stored[20] ^= 1
    with pytest.raises(SecretsUnreadable):
        box(key).decrypt(bytes(stored))


@pytest.mark.parametrize("keys", [[], ["too short"]])
def test_bad_keys_say_how_to_get_a_good_one(keys: list[str]) -> None:
    with pytest.raises(ValueError, match=r"python -m weft_core\.secrets"):
        box(*keys)


def test_tokens_are_unguessable_recognisable_and_hidden() -> None:
    token, other = tokens.new_token("user"), tokens.new_token("user")
    assert token.plain != other.plain
    assert token.plain.startswith("weft_u_")
    assert len(token.plain) == len("weft_u_") + 43  # 256 bits
    assert token.plain.startswith(token.prefix)
    assert token.plain not in repr(token)
    assert token.sha256 == tokens.hash_token(token.plain)
    assert tokens.new_token("attempt").plain.startswith("weft_a_")


def test_passwords() -> None:
    stored = tokens.hash_password("correct horse")
    assert "correct" not in stored
    assert tokens.verify_password("correct horse", stored)
    assert not tokens.verify_password("wrong", stored)
    assert not tokens.verify_password("x", "no hash at all")
