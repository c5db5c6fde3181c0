"""The GPU of this machine, and the environment on it that has a CUDA build of PyTorch: that is the jobs' image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.environments import python_of
from tests.nvml import make_library, make_nvidia_smi

# Read at import, as the tests' own fixtures take WEFT_… out of the environment.
_GIVEN = os.environ.get("WEFT_GPU_ENVIRONMENT")
_REHEARSAL = os.environ.get("WEFT_GPU_REHEARSAL")
REQUIRED = bool(_GIVEN)
"""Whether the user has named an environment; then a missing GPU is no reason to run nothing, but a failure."""

_PROBE = """
import json, sys, torch
print(json.dumps([sys.prefix, torch.__version__, torch.version.cuda, torch.cuda.is_available()]))
"""


class NotHere(Exception):
    """This machine lacks something that the tests need; the message, which begins with NOT RUN, says what."""


@dataclass(frozen=True)
class GpuMachine:
    """
    Attributes:
        environment: the folder that manifests name as their image.
        torch: what PyTorch it is, for titles.
        uuids: of the GPUs, as ``nvidia-smi -L`` lists them.
        device: where programs train: ``cuda``, in a rehearsal ``cpu``.
        variables: what `weft` commands have to be given besides the environment's own variables.
    """

    environment: Path
    torch: str
    uuids: tuple[str, ...]
    device: str = "cuda"
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def rehearsal(self) -> bool:
        return self.device == "cpu"

    @property
    def python(self) -> Path:
        plain = self.environment / "bin" / "python"
        return plain if plain.exists() else plain.with_name("python3")


def find_gpu(folder: Path) -> GpuMachine:
    """What there is to run on.

    Args:
        folder: for what a rehearsal (WEFT_GPU_REHEARSAL) pretends.

    Raises:
        NotHere: no GPU, or no PyTorch that can use it.
    """
    if _REHEARSAL:
        return _pretend(folder)
    if shutil.which("nvidia-smi") is None:
        raise NotHere("NOT RUN: no NVIDIA GPU (there is no nvidia-smi on the PATH)")
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    uuids = re.findall(r"^GPU \d+: .*\(UUID: (\S+)\)", listing.stdout, re.MULTILINE)
    if not uuids:
        raise NotHere(f"NOT RUN: no NVIDIA GPU (nvidia-smi -L: {(listing.stderr or listing.stdout).strip()[:200]})")
    python = _python()
    probed = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    if probed.returncode != 0:
        said = (probed.stderr.strip().splitlines() or ["?"])[-1]
        raise NotHere(f"NOT RUN: {python} has no PyTorch ({said}); WEFT_GPU_ENVIRONMENT names another environment")
    prefix, version, cuda, available = json.loads(probed.stdout.splitlines()[-1])
    if not available:
        raise NotHere(f"NOT RUN: PyTorch {version} of {python} can't use the GPU (built for CUDA {cuda})")
    return GpuMachine(Path(prefix), f"PyTorch {version}", tuple(uuids))


def _python() -> Path:
    """Of the environment that is given, else the first `python3` on the PATH that is not the tests' own."""
    if _GIVEN:
        folder = Path(_GIVEN) / "bin"
        return folder / "python" if (folder / "python").exists() else folder / "python3"
    for folder in map(Path, os.get_exec_path()):
        if (folder / "python3").is_file() and folder != Path(sys.prefix) / "bin":
            return folder / "python3"
    raise NotHere("NOT RUN: no python3 with PyTorch; WEFT_GPU_ENVIRONMENT names an environment")


def _pretend(folder: Path) -> GpuMachine:
    """One GPU that only nvidia-smi and NVML know of; programs train on the CPU."""
    make_nvidia_smi(folder)
    make_library(folder)
    environment = Path(_GIVEN) if _GIVEN else python_of("pytorch").parents[1]
    path = f"{Path(sys.executable).parent}:{folder}:{os.environ['PATH']}"
    variables = {"PATH": path, "LD_LIBRARY_PATH": str(folder)}
    return GpuMachine(environment, "a rehearsal on the CPU", ("GPU-0",), "cpu", variables)
