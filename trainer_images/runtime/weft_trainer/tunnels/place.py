"""The place of the user's program, which commands in a tunnel share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from weft_trainer.machine.sealing import Sealed
from weft_trainer.reprs import repr_without


class Place(NamedTuple):
    env: Mapping[str, str]
    folder: Path
    sealed: Sealed

    def __repr__(self) -> str:
        return repr_without(self, "env")
