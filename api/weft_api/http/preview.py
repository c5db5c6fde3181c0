"""Showing a file of a user's program in a browser, where it must never run as a page of Weft.

Only images of a few plain formats keep their type; everything else is text (HTML and SVG, too) or is refused. A
sandbox, ``nosniff`` and a policy that allows nothing hold even where a type were wrong.
"""

from __future__ import annotations

import posixpath
from urllib.parse import quote

from fastapi import Response

from weft_api.http.problems import UNSUPPORTED_MEDIA, Problem

MOST_SHOWN = 1 << 20
"""The most bytes of a text that are shown."""
_IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
SAFE = {
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def image_type(path: str) -> str | None:
    """The media type of an image that browsers show without running anything in it; else None."""
    return _IMAGES.get(posixpath.splitext(path)[1].lower())


def disposition(path: str, kind: str = "attachment") -> str:
    return f"{kind}; filename*=UTF-8''{quote(posixpath.basename(path), safe='')}"


def text_answer(path: str, beginning: bytes, size: int) -> Response:
    """The answer for a text of ``size`` bytes that begins like this. Raises Problem unsupported_media_type."""
    if b"\0" in beginning[:8192]:
        raise Problem(UNSUPPORTED_MEDIA, f"{posixpath.basename(path)!r} is neither text nor an image: download it")
    whole = len(beginning) == size
    media = "application/json" if whole and path.lower().endswith(".json") else "text/plain; charset=utf-8"
    headers = SAFE | {
        "Content-Disposition": disposition(path, "inline"),
        "X-Weft-Size": str(size),
        "X-Weft-Truncated": "false" if whole else "true",
    }
    return Response(beginning, media_type=media, headers=headers)
