"""The GPUs, cores and memory of this machine, and their distribution to learners."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from weft_core.engine import Capacity, LaunchRefused, Node, gpu_type_fits
from weft_core.engine_settings import LocalSettings
from weft_core.launch import LaunchSpec, Resources
from weft_workers.supervision import cgroups


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG slice of one; ``id`` is for ``CUDA_VISIBLE_DEVICES``."""

    id: str
    type: str | None = None


@dataclass(frozen=True)
class Slots:
    """The GPUs and cores that one learner gets for itself."""

    gpus: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()  # none: it shares all of them


@dataclass(frozen=True)
class Machine:
    """The part of this machine that the engine may give to learners."""

    cpus: float
    memory: int
    gpus: tuple[Gpu, ...]
    cores: tuple[int, ...]

    @staticmethod
    def of(settings: LocalSettings) -> Machine:
        """As the settings say, else as this process finds it: its affinity and control groups are respected."""
        cores = tuple(sorted(os.sched_getaffinity(0)))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        gpus = find_gpus() if settings.gpus is None or settings.gpus > 0 else ()
        if settings.gpus is not None:
            gpus = (*gpus, *(Gpu(str(index)) for index in range(len(gpus), settings.gpus)))[: settings.gpus]
        return Machine(
            cpus=settings.cpus if settings.cpus is not None else min(len(cores), cgroups.cpu_limit() or len(cores)),
            memory=settings.memory if settings.memory is not None else min(memory, cgroups.memory_limit() or memory),
            gpus=gpus,
            cores=cores,
        )

    @property
    def capacity(self) -> Capacity:
        kind = self.gpus[0].type if self.gpus else None
        return Capacity((Node(socket.gethostname(), self.cpus, len(self.gpus), self.memory, kind),))

    def refuse(self, spec: LaunchSpec) -> None:
        """Raise :class:`LaunchRefused` if the whole machine is too small for the gang."""
        each, count = spec.resources, spec.learners
        wanted = [
            ("CPUs", each.cpus * count, self.cpus),
            ("GPUs", each.gpus * count, len(self.gpus)),
            ("GiB of memory", each.memory * count / (1 << 30), self.memory / (1 << 30)),
        ]
        for what, asked, there in wanted:
            if asked > there + 1e-9:
                who = f"{count} learners together ask" if count > 1 else "the job asks"
                raise LaunchRefused(f"{who} for {asked:.4g} {what}, this machine has {there:.4g}", "S100")
        if each.gpus and each.gpu_type and not any(gpu_type_fits(each.gpu_type, gpu.type) for gpu in self.gpus):
            has = ", ".join(sorted({gpu.type or "unknown" for gpu in self.gpus}))
            raise LaunchRefused(f"gpu_type {each.gpu_type!r}: this machine has {has}", "S100")

    def assign(self, spec: LaunchSpec, taken: Iterable[Slots]) -> list[Slots] | None:
        """Slots for each learner; None: there aren't as many GPUs free.

        A learner gets CPU cores of its own where it asks for whole ones and every learner finds some. Otherwise all
        share what there is, and the kernel's scheduler does what it can.
        """
        taken = list(taken)
        used_gpus = {gpu for slots in taken for gpu in slots.gpus}
        used_cores = {core for slots in taken for core in slots.cores}
        gpus = [gpu.id for gpu in self.gpus if gpu.id not in used_gpus]
        cores = [core for core in self.cores if core not in used_cores]
        if len(gpus) < spec.resources.gpus * spec.learners:
            return None
        each = self._own_cores(spec.resources)
        if self.cpus > len(self.cores) or each * spec.learners > len(cores):
            each = 0
        return [
            Slots(
                tuple(gpus[rank * spec.resources.gpus : (rank + 1) * spec.resources.gpus]),
                tuple(cores[rank * each : (rank + 1) * each]),
            )
            for rank in range(spec.learners)
        ]

    @staticmethod
    def _own_cores(resources: Resources) -> int:
        return int(resources.cpus) if resources.cpus == int(resources.cpus) else 0


@lru_cache(maxsize=1)
def find_gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use, asked once: `nvidia-smi` takes seconds on some machines."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = parse_gpus(listing)
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return found
    visible = [entry.strip() for entry in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if entry.strip()]
    types = {gpu.id: gpu.type for gpu in found}
    return tuple(Gpu(entry, types.get(entry)) for entry in visible)


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """The GPUs in `nvidia-smi -L`'s answer. Of a GPU that is split (MIG), the slices."""
    found: list[Gpu] = []
    kind = ""
    for line in listing.splitlines():
        if whole := re.match(r"GPU (\d+): (.*?) \(UUID:", line):
            kind = whole[2]
            found.append(Gpu(whole[1], kind))
        elif piece := re.match(r"\s+MIG (.*?)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            if found and found[-1].id.isdecimal():
                found.pop()  # a split one can't be used as a whole
            found.append(Gpu(piece[2], f"{kind} MIG {piece[1]}"))
    return tuple(found)
