"""Control sequences in the output of programs: colours are shown, and all others are made harmless."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)(?P<colour>[0-9;:]*m)"  # SGR: colours, bold, …
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # other CSI: cursor movement, clearing, modes
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, the clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS and its like
    r"|\x1b[ -/]*[0-~]?"  # other escapes, and the beginnings of those that have no end
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_UNSEEN = {"\x07", "\x08"}  # bell, backspace
RESET = "\x1b[0m"


def plain(text: str) -> str:
    """``text`` without any control sequence, for files and pipes."""
    return _SEQUENCE.sub("", text) if "\x1b" in text or not text.isascii() else text


def shown(text: str, *, colours: bool) -> str:
    """``text`` in a form that is safe for a terminal: with its colours if wanted, and without any other control
    sequence.

    Of a progress bar that overwrites itself, only the last state remains.
    """
    if text.isprintable():
        return text
    # As on a terminal, text after a carriage return covers the text before it.
    text = text.rstrip("\r")
    text = text[text.rfind("\r") + 1 :]
    return harmless(text, colours=colours)


def harmless(text: str, *, colours: bool) -> str:
    """Like :func:`shown`, for a part of a line."""
    if text.isprintable():
        return text
    pieces = []
    end = 0
    coloured = False
    for found in _SEQUENCE.finditer(text):
        pieces.append(_CONTROL.sub(_picture, text[end : found.start()]))
        if colours and found["colour"] is not None:
            pieces.append("\x1b[" + found["colour"])
            coloured = True
        end = found.end()
    pieces.append(_CONTROL.sub(_picture, text[end:]))
    return "".join(pieces) + (RESET if coloured else "")


def visible(text: str) -> str:
    """Text of several lines, without control sequences."""
    return "\n".join(harmless(line, colours=False) for line in text.split("\n"))


def _picture(found: re.Match[str]) -> str:
    """A visible form of a control character."""
    character = found[0]
    if character in _UNSEEN:
        return ""
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
