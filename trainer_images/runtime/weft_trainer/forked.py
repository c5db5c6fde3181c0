"""The modules that a process loads so that its forks can be agents: imports take most of an agent's start. The fork
server of the local engine does so."""

from __future__ import annotations

import encodings.cp437
import encodings.idna
from contextlib import suppress

import weft_trainer.launchers.none
from weft_trainer.__main__ import run
from weft_trainer.agent import Agent

with suppress(ImportError):  # the one beside the agent, which serves images with any
    import psutil

__all__ = ["Agent", "encodings", "psutil", "run", "weft_trainer"]
