"""A stream that is encrypted by a passphrase, in pieces: every piece is checked before it is returned, and a cut file
is noticed.

AES-256-GCM in pieces of 1 MiB. A nonce is made of a random beginning, the piece's number, and whether it is the last
(the STREAM construction), so that pieces can't be left out, swapped or cut off. scrypt derives the key from the
passphrase.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAGIC = b"WEFT BACKUP 1 AES-256-GCM scrypt\n"
_SALT, _BEGINNING, _TAG = 16, 7, 16
_PIECE = 1 << 20


class BadPassphrase(Exception):
    """The passphrase is wrong, or the beginning of the file was changed."""


class Damaged(Exception):
    """The file was changed or cut off."""


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt, length=32, n=1 << 17, r=8, p=1).derive(passphrase.encode()))


def _nonce(beginning: bytes, number: int, last: bool) -> bytes:
    return beginning + number.to_bytes(4, "big") + bytes([last])


class Encrypting(io.RawIOBase):
    """Writes encrypted pieces to ``file``; closing it writes the last one and leaves ``file`` open."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        self._file = file
        salt, self._beginning = os.urandom(_SALT), os.urandom(_BEGINNING)
        self._cipher = _cipher(passphrase, salt)
        self._header = MAGIC + salt + self._beginning
        self._number = 0
        self._waiting = bytearray()
        file.write(self._header)

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        self._waiting += view
        while len(self._waiting) > _PIECE:
            self._put(bytes(self._waiting[:_PIECE]), last=False)
            del self._waiting[:_PIECE]
        return view.nbytes

    def _put(self, piece: bytes, *, last: bool) -> None:
        nonce = _nonce(self._beginning, self._number, last)
        self._file.write(self._cipher.encrypt(nonce, piece, self._header))
        self._number += 1

    def finish(self) -> None:
        """Write the last piece: without it, the file counts as cut off."""
        self._put(bytes(self._waiting), last=True)
        self._waiting.clear()


class Decrypting(io.RawIOBase):
    """Reads what :class:`Encrypting` has written; ``file`` stands after the :data:`MAGIC`.

    Raises:
        BadPassphrase, Damaged: also from ``read``.
    """

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        self._file = file
        rest = file.read(_SALT + _BEGINNING)
        if len(rest) < _SALT + _BEGINNING:
            raise Damaged
        self._beginning = rest[_SALT:]
        self._header = MAGIC + rest
        self._cipher = _cipher(passphrase, rest[:_SALT])
        self._number = 0
        self._ahead = file.read(_PIECE + _TAG)
        self._ready = memoryview(b"")
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        if not self._ready and not self._over:
            self._next()
        size = min(len(view), len(self._ready))
        view[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _next(self) -> None:
        piece, self._ahead = self._ahead, self._file.read(_PIECE + _TAG)
        self._over = not self._ahead
        try:
            nonce = _nonce(self._beginning, self._number, self._over)
            self._ready = memoryview(self._cipher.decrypt(nonce, piece, self._header))
        except (InvalidTag, ValueError):
            raise (Damaged if self._number else BadPassphrase) from None
        self._number += 1
