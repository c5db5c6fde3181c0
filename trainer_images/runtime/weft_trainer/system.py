"""System metrics of one learner: CPU and memory of its processes, and the GPUs it sees."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import psutil


class SystemMetrics:
    """CPU and memory are those of the agent's descendants: on a machine with several learners each shows its own."""

    def __init__(self, ignore: int) -> None:
        """``ignore`` is the pid of a child that is the agent's own, not the user's."""
        self._ignore = ignore
        self._self = psutil.Process()
        self._cpu_before = 0.0
        self._at = time.monotonic()
        self._gpus = Nvml.load()

    def read(self) -> dict[str, Any]:
        cpu, memory = self._processes()
        metrics: dict[str, Any] = {"cpu_percent": cpu, "memory_bytes": memory}
        if self._gpus is not None:
            metrics["gpus"] = self._gpus.read()
        return metrics

    def _processes(self) -> tuple[float, int]:
        now = time.monotonic()
        # With what those used that have ended meanwhile: when a process is reaped, its time becomes its parent's.
        own = self._self.cpu_times()
        total, memory = own.children_user + own.children_system, 0
        for process in self._self.children(recursive=True):
            if process.pid == self._ignore:
                continue
            try:
                times = process.cpu_times()
                memory += process.memory_info().rss
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        percent = 100 * max(0.0, total - self._cpu_before) / max(now - self._at, 1e-3)
        self._cpu_before, self._at = total, now
        return round(percent, 1), memory


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """NVIDIA's management library, which comes with the driver; no package is needed."""

    def __init__(self, library: ctypes.CDLL, handles: list[tuple[int, ctypes.c_void_p]]) -> None:
        self._library = library
        self._handles = handles

    @classmethod
    def load(cls) -> Nvml | None:
        """None where there is no NVIDIA GPU."""
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
        if library.nvmlInit_v2() != 0:
            return None
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
                continue
            if _visible(index, _uuid(library, handle)):
                handles.append((index, handle))
        return cls(library, handles) if handles else None

    def read(self) -> list[dict[str, Any]]:
        gpus = []
        for index, handle in self._handles:
            load, memory = _Utilization(), _Memory()
            self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load))
            self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
            gpus.append(
                {
                    "index": index,
                    "percent": load.gpu,
                    "memory_bytes": memory.used,
                    "memory_total_bytes": memory.total,
                }
            )
        return gpus


def _uuid(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    library.nvmlDeviceGetUUID(handle, buffer, 96)
    return buffer.value.decode()


def _visible(index: int, uuid: str) -> bool:
    """Whether the engine gave this GPU to the learner (CUDA_VISIBLE_DEVICES holds indices or UUIDs)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",")]
    return str(index) in names or any(name and uuid.startswith(name) for name in names if name.startswith("GPU-"))
