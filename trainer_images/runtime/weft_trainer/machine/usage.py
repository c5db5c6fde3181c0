"""How much a learner uses: CPU, memory, disk and network of its processes, and the GPUs that it sees."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_SIZE_SHARE = 50
"""The pause between two measurements of the folders' size, as a multiple of the time that the last one took."""
_COMPUTES = 1_000_000
"""Nanoseconds for which a process runs each time that it gets a processor. Processes that only poll run for less."""


class SystemMetrics:
    """CPU and memory are those of the agent's descendants: on a machine with several learners each shows its own."""

    def __init__(self, ignore: Collection[int]) -> None:
        """``ignore``: pids of children that are the agent's own, not the user's."""
        self._ignore = ignore
        self._self = psutil.Process()
        self.wrote = False
        """Whether a process has written to a disk between the last two readings."""
        self._written: dict[int, int] = {}
        self.demand = 0.0
        """Percent of one core that the processes would have used between the last two readings if none had waited for a
        processor. On a crowded machine, this is more than they have used."""
        self._schedules: dict[int, tuple[int, int, int]] = {}
        self._cpu_before = 0.0
        self._at = time.monotonic()
        self._gpus = Nvml.load()

    def descendants(self) -> list[psutil.Process]:
        return [process for process in self._self.children(recursive=True) if process.pid not in self._ignore]

    def read(self, processes: Sequence[psutil.Process] | None = None) -> dict[str, Any]:
        """``processes``: the descendants, if they are known already."""
        cpu, memory = self._processes(self.descendants() if processes is None else processes)
        metrics: dict[str, Any] = {"cpu_percent": cpu, "memory_bytes": memory}
        if self._gpus is not None:
            metrics["gpus"] = self._gpus.read()
        return metrics

    def _processes(self, processes: Sequence[psutil.Process]) -> tuple[float, int]:
        now = time.monotonic()
        # Including processes that have ended meanwhile: when a process is reaped, its time becomes its parent's.
        own = self._self.cpu_times()
        total, memory = own.children_user + own.children_system, 0
        before, self._written, self.wrote = self._written, {}, False
        known, self._schedules = self._schedules, {}
        computed = waited = starved = 0
        for process in processes:
            try:
                times = process.cpu_times()
                memory += process.memory_info().rss
            except psutil.Error:
                continue
            total += times.user + times.system + times.children_user + times.children_system
            with suppress(psutil.Error, OSError):  # not everywhere
                self._written[process.pid] = process.io_counters().write_bytes
                self.wrote |= self._written[process.pid] > before.get(process.pid, 0)
            with suppress(OSError, ValueError):  # not in every kernel
                new, old = _schedule(process.pid), known.get(process.pid, (0, 0, 0))
                self._schedules[process.pid] = new
                # The kernel counts a wait when it ends.
                starved += new == old and process.status() == psutil.STATUS_RUNNING
                if new[0] - old[0] >= (new[2] - old[2]) * _COMPUTES:
                    computed, waited = computed + new[0] - old[0], waited + new[1] - old[1]
        percent = 100 * max(0.0, total - self._cpu_before) / max(now - self._at, 1e-3)
        self._cpu_before, self._at = total, now
        self.demand = (percent * (computed + waited) / computed if computed else percent) + 100 * starved
        return round(percent, 1), memory


def _schedule(pid: int) -> tuple[int, int, int]:
    """Of a process's first thread: nanoseconds that it ran and that it waited to run, and how often it ran (the
    kernel's sched-stats)."""
    ran, waited, slices = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran), int(waited), int(slices)


class Usage:
    """The values of the learner's system metrics.

    Args:
        folders: the folders whose size is ``disk_used_bytes``.
        memory: bytes that the learner may use; None: its control group may have a limit.
    """

    def __init__(self, ignore: Collection[int], folders: Sequence[Path], memory: int | None) -> None:
        self._metrics = SystemMetrics(ignore)
        self._metrics.read()  # from here on CPU is counted
        self._folders = folders
        self._memory = memory or _memory_limit()
        self._size_due = 0.0
        self._io: dict[tuple[int, float], tuple[int, int]] = {}
        self._network: tuple[int, int] | None = None
        self._at = time.monotonic()
        self._rates([])

    def read(self) -> dict[str, float]:
        """By the names in docs/metrics.md. Values that this machine does not give are missing."""
        processes = self._metrics.descendants()
        system = self._metrics.read(processes)
        values: dict[str, float] = {"cpu_percent": system["cpu_percent"], "memory_bytes": system["memory_bytes"]}
        if self._memory:
            values["memory_limit_bytes"] = self._memory
        values.update(self._rates(processes))
        if time.monotonic() >= self._size_due:
            started = time.monotonic()
            values["disk_used_bytes"] = sum(_size(folder) for folder in self._folders)
            self._size_due = started + _SIZE_SHARE * (time.monotonic() - started)
        for number, gpu in enumerate(system.get("gpus", ())):
            for name in ("percent", "memory_bytes", "temperature_c", "power_w"):
                if name in gpu:
                    values[f"gpu{number}_{name}"] = gpu[name]
        return values

    def _rates(self, processes: Sequence[psutil.Process]) -> dict[str, float]:
        now = time.monotonic()
        seconds = max(now - self._at, 1e-3)
        self._at = now
        read, written = self._disk(processes)
        rates = {"disk_read_bytes_per_s": read / seconds, "disk_write_bytes_per_s": written / seconds}
        network = _network()
        if network is not None and self._network is not None:
            rates["net_in_bytes_per_s"] = max(0, network[0] - self._network[0]) / seconds
            rates["net_out_bytes_per_s"] = max(0, network[1] - self._network[1]) / seconds
        self._network = network
        return {name: round(rate) for name, rate in rates.items()}

    def _disk(self, processes: Sequence[psutil.Process]) -> tuple[int, int]:
        """Bytes that the processes have brought from and sent to disks since the last time."""
        before, self._io = self._io, {}
        read = written = 0
        for process in processes:
            with suppress(psutil.Error, OSError):
                counters = process.io_counters()
                identity = (process.pid, process.create_time())
                self._io[identity] = (counters.read_bytes, counters.write_bytes)
                had = before.get(identity, (0, 0))
                read += max(0, counters.read_bytes - had[0])
                written += max(0, counters.write_bytes - had[1])
        return read, written


def _network() -> tuple[int, int] | None:
    """Bytes in and out of this network namespace: a pod's own, elsewhere the machine's; without the loopback."""
    with suppress(OSError, psutil.Error):
        cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        return sum(card.bytes_recv for card in cards), sum(card.bytes_sent for card in cards)
    return None


def _memory_limit() -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int(Path("/sys/fs/cgroup", name).read_text())
            return limit if limit < 1 << 60 else None
    return None


def _size(folder: Path | str) -> int:
    """Bytes that the files below ``folder`` take on the disk."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += _size(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


_TEMPERATURE_GPU = 0  # the chip's own sensor


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
            gpu: dict[str, Any] = {"index": index}
            load, memory = _Utilization(), _Memory()
            if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0:  # not of a part of a GPU
                gpu["percent"] = load.gpu
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                gpu |= {"memory_bytes": memory.used, "memory_total_bytes": memory.total}
            degrees, milliwatts = ctypes.c_uint(), ctypes.c_uint()
            if self._library.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU, ctypes.byref(degrees)) == 0:
                gpu["temperature_c"] = degrees.value
            if self._library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts)) == 0:
                gpu["power_w"] = milliwatts.value / 1000
            gpus.append(gpu)
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
