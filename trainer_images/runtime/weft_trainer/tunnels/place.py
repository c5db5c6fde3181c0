"""The place of the user's program, which commands in a tunnel share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft_trainer.machine.sealing import Sealed


@dataclass(frozen=True)
class Place:
    env: Mapping[str, str] = field(repr=False)
    folder: Path
    sealed: Sealed
