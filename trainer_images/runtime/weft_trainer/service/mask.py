"""Masks the secrets of a learner in all texts that leave it: its log, its metrics, its events and reports.

The mask is for mistakes: a program that prints its environment, an HTTP header or a URL with a password. It does not
stop a program that gives its secrets away on purpose, which may send them anywhere.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO
from urllib.parse import quote

from weft_trainer.spec import LearnerSpec, StoreKeys

STARS = "***"
SHORTEST = 4
"""Characters. A shorter value would be found in every second word."""
_SHORTEST_ENCODED = 6
_SAFE = ("", "/", "!'()*", "!'()*/", "-._*", "!$&'()*+,;=:@", "!$&'()*+,;=:@/?", "!$&'()*+,;=:@/?#[]")
"""Characters besides letters and digits that encoders of URLs leave as they are: Python's, JavaScript's
``encodeURIComponent`` and ``encodeURI``, those of HTML forms, and those of the parts of a URL in RFC 3986."""
_WRAPPED = (76, 64)
"""Characters of a line, as `base64` and `openssl base64` wrap their output."""


class Mask:
    """Replaces each of ``secrets`` by stars: as it is, quoted in JSON or Python, URL-encoded, and in base64, alone or
    within other text. Each line of a secret of several lines counts as a secret. Values of less than ``SHORTEST``
    characters stay."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms: list[str] = []
        self._bytes: list[bytes] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these as well from now on."""
        forms = {form for secret in secrets for form in _forms(secret)} | set(self._forms)
        # The longest first: a form may be a part of another.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._bytes = [form.encode("utf-8", "surrogateescape") for form in self._forms]

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, STARS)
        return text

    def within(self, value: Any) -> Any:
        """A JSON value with all of its texts masked; not the keys of its objects."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.within(entry) for entry in value]
        return {key: self.within(entry) for key, entry in value.items()} if isinstance(value, Mapping) else value

    def raw(self, raw: bytes) -> bytes:
        for form in self._bytes:
            if form in raw:
                raw = raw.replace(form, STARS.encode())
        return raw

    def finds(self, text: str) -> bool:
        """Whether ``text`` has anything to mask. One search through many lines takes a fraction of many searches."""
        return any(form in text for form in self._forms)


class MaskedStream:
    """A text stream whose output is masked. Each piece that is written is masked by itself."""

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask = mask

    def write(self, text: str) -> int:
        return self._stream.write(self._mask.text(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def secrets_of(spec: LearnerSpec, token: str) -> Iterator[str]:
    """The secrets that a learner got: those of the manifest, the credentials of its stores and of its repository, and
    its access to the service.

    Args:
        token: of the attempt.
    """
    yield token
    yield spec.gang_secret
    for name in spec.secrets:
        yield spec.env.get(name, "")
    if spec.mlflow is not None:
        yield spec.mlflow.token
    if spec.store_keys is not None:
        yield from secrets_in(spec.store_keys)
    if spec.identity is not None:
        yield spec.identity.token
    for location in (*(entry.location for entry in spec.data), spec.pretrained, spec.results, spec.checkpoints):
        if location is not None:
            yield location.secret_key
            yield location.session_token or ""
    if spec.repo is not None and spec.repo.authorization:
        encoded = spec.repo.authorization.partition(" ")[2]
        yield encoded
        yield base64.b64decode(encoded).decode("utf-8", "replace").partition(":")[2]


def secrets_in(keys: StoreKeys) -> tuple[str, str]:
    return keys.secret_key, keys.session_token


def _forms(secret: str) -> Iterator[str]:
    whole = secret.strip()
    for value in {whole, *(line.strip() for line in whole.splitlines())}:
        if len(value) < SHORTEST:
            continue
        yield value
        yield from _in_urls(value)
        yield json.dumps(value)[1:-1]
        yield json.dumps(value, ensure_ascii=False)[1:-1]
        yield repr(value)[1:-1]
        yield from _in_base64(value.encode("utf-8", "surrogateescape"))


def _in_urls(value: str) -> Iterator[str]:
    for safe in _SAFE:
        encoded = quote(value, safe=safe, errors="surrogateescape")
        for form in (encoded, encoded.replace("%20", "+")):
            yield form
            yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _in_base64(value: bytes) -> Iterator[str]:
    """The characters of base64 that depend on ``value`` alone, for the three places in a group of three bytes at which
    it may begin."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value).decode()
        begin = (0, 2, 3)[before]
        # The last character holds bits of the text after the value, if the value does not end with a group.
        core = whole[begin:] if (before + len(value)) % 3 == 0 else whole.rstrip("=")[begin:-1]
        for encoded in (core, whole) if before == 0 else (core,):
            for part in (encoded, *_wrapped(encoded)):
                if len(part) >= _SHORTEST_ENCODED:
                    yield part
                    yield part.replace("+", "-").replace("/", "_")


def _wrapped(text: str) -> Iterator[str]:
    for width in _WRAPPED:
        for at in range(0, len(text), width):
            yield text[at : at + width]
