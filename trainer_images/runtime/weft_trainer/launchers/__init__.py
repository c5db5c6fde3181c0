"""Launchers by their name in the spec."""

from __future__ import annotations

from weft_trainer.errors import TrainerError
from weft_trainer.launchers.base import Launcher
from weft_trainer.launchers.horovod import HorovodLauncher
from weft_trainer.launchers.none import NoLauncher
from weft_trainer.launchers.ray import RayLauncher
from weft_trainer.launchers.slurm import SlurmLauncher
from weft_trainer.launchers.tensorflow import TensorFlowLauncher
from weft_trainer.launchers.torchrun import TorchrunLauncher

_LAUNCHERS: dict[str, type[Launcher]] = {
    "none": NoLauncher,
    "horovod": HorovodLauncher,
    "torchrun": TorchrunLauncher,
    "tensorflow": TensorFlowLauncher,
    "ray": RayLauncher,
    "slurm": SlurmLauncher,
}


def find_launcher(name: str) -> Launcher:
    """Raises: TrainerError."""
    kind = _LAUNCHERS.get(name)
    if kind is None:
        raise TrainerError(f"launcher '{name}' is not one that this learner's image has: {', '.join(_LAUNCHERS)}")
    return kind()
