"""Writing files that others must not read."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads (0600), whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(text)
    temporary.replace(path)
