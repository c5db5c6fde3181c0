"""Compression of small pieces: a few log lines, the points of a block."""

from __future__ import annotations

import zlib

_LARGEST_WINDOW, _SMALLEST_WINDOW = 15, 10
"""Powers of two, in bytes."""


def deflate(data: bytes) -> bytes:
    """Compress quickly; ``zlib.decompress`` reads it.

    The window is no larger than the data. By default, zlib clears a quarter of a MiB for each call, which takes ten
    times as long as the compression of a few lines.
    """
    window = min(max(len(data).bit_length(), _SMALLEST_WINDOW), _LARGEST_WINDOW)
    return zlib.compress(data, 1, window)
