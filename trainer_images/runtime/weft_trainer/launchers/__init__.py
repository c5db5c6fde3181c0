"""Launchers by their name in the spec."""

from __future__ import annotations

from importlib import import_module

from weft_trainer.errors import TrainerError
from weft_trainer.launchers.base import Launcher

_LAUNCHERS = {
    "none": "NoLauncher",
    "horovod": "HorovodLauncher",
    "torchrun": "TorchrunLauncher",
    "tensorflow": "TensorFlowLauncher",
    "ray": "RayLauncher",
    "slurm": "SlurmLauncher",
}
"""The class of each, in the module of its name. A learner loads only its own."""


def find_launcher(name: str) -> Launcher:
    """Raises: TrainerError."""
    kind = _LAUNCHERS.get(name)
    if kind is None:
        raise TrainerError(f"launcher '{name}' is not one that this learner's image has: {', '.join(_LAUNCHERS)}")
    made: Launcher = getattr(import_module(f"{__name__}.{name}"), kind)()
    return made
