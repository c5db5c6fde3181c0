"""A pretend `libnvidia-ml.so.1` and `nvidia-smi`, for machines without an NVIDIA GPU. tests/gpu has the real ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = """
#include <string.h>
typedef struct { unsigned int gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(index + 1L); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  strcpy(uuid, "GPU-0"); uuid[4] = '0' + (long)device - 1; return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, rates *found) { found->gpu = 10 * (long)device; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) { found->total = 1000; found->used = 7; return 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *degrees) { *degrees = 60 + sensor; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
  if ((long)device == 3) return 3; /* not supported */
  *milliwatts = 123456; return 0;
}
"""
_LISTING = """#!/bin/sh
[ "$1" = -L ] && echo "GPU 0: Pretend GPU (UUID: GPU-0)"
"""


def make_library(folder: Path) -> Path:
    """Compile the library, with three GPUs, into ``folder``, which belongs on LD_LIBRARY_PATH. Needs `cc`."""
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def make_nvidia_smi(folder: Path) -> Path:
    """Write a program that lists one GPU into ``folder``, which belongs on PATH."""
    program = folder / "nvidia-smi"
    program.write_text(_LISTING)
    program.chmod(0o755)
    return program
