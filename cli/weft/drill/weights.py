"""Trained weights, read without running anything that is in the file.

The content decides about the format: archives and arrays of NumPy, safetensors, state dicts of ``torch.save``, and HDF5
(Keras). A state dict is read without PyTorch, by an unpickler that knows tensors and nothing else.
"""

from __future__ import annotations

import json
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from weft.errors import WeftError

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray[Any, Any]]

SUFFIXES = frozenset({".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".keras", ".h5", ".hdf5"})
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bf16", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?",
}  # fmt: skip
_STORAGES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "bf16",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "?",
}  # fmt: skip
_MOST_HEADER = 100 << 20
_NOISE = 3.0
"""As many times the largest difference of two undisturbed trainings counts as noise."""


class Unreadable(WeftError):
    """The file holds no weights that can be compared; the text says why."""


@dataclass(frozen=True)
class Difference:
    """How the tensors of two files differ.

    Attributes:
        tensors: how many both have.
        differing: the names of those that differ by more than the limit, and of those that only one of them has.
        largest: the largest difference, relative to the largest number of its tensor.
        worst: the tensor of this difference.
    """

    tensors: int
    differing: tuple[str, ...]
    largest: float
    worst: str = ""


@dataclass(frozen=True)
class FileResult:
    """A file of the results; ``difference`` None: it was not compared, for the reason ``why_not``."""

    file: str
    difference: Difference | None = None
    why_not: str = ""

    def beyond(self, noise: float) -> FileResult:
        """The file, without a difference that is not larger than noise."""
        apart = self.difference
        if apart is None or not noise or apart.largest > _NOISE * noise:
            return self
        return FileResult(self.file, Difference(apart.tensors, (), apart.largest, apart.worst))


def read(path: Path) -> Arrays:
    """The tensors of a file by name.

    Raises:
        Unreadable: the format is not known, or holds more than tensors and numbers.
        WeftError: NumPy is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise WeftError("weights are compared with NumPy, which is missing: pip install 'weft[drill]'") from None
    try:
        with path.open("rb") as file:
            head = file.read(9)
        if head.startswith(b"\x93NUMPY"):
            return {"": numpy.load(path, allow_pickle=False)}
        if head.startswith(b"\x89HDF\r\n"):
            return _hdf5(path)
        if head.startswith(b"PK"):
            return _archive(path)
        if head[8:] == b"{":
            return _safetensors(path)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        EOFError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        raise Unreadable(f"it can't be read: {error}") from None
    raise Unreadable("its format is none of npz, npy, safetensors, torch.save (zip), Keras and HDF5")


def difference(before: Arrays, after: Arrays, limit: float) -> Difference:
    """Compare the tensors of two files. A tensor differs if one of its numbers does by more than ``limit`` times the
    largest."""
    common = [name for name in before if name in after]
    differing = before.keys() ^ after.keys()
    largest, worst = 0.0, ""
    for name in common:
        apart = _apart(before[name], after[name])
        if apart > largest:
            largest, worst = apart, name
        if apart > limit:
            differing.add(name)
    return Difference(len(common), tuple(sorted(differing)), largest, worst)


def _apart(before: Any, after: Any) -> float:
    import numpy

    if before.shape != after.shape or before.dtype.kind not in "fiub" or after.dtype.kind not in "fiub":
        same = before.shape == after.shape and bool(numpy.array_equal(before, after))
        return 0.0 if same else math.inf
    if not before.size:
        return 0.0
    wide_before, wide_after = before.astype("f8"), after.astype("f8")
    finite = numpy.isfinite(wide_before)
    if not numpy.array_equal(wide_before[~finite], wide_after[~finite], equal_nan=True):
        return math.inf
    if not numpy.isfinite(wide_after[finite]).all():
        return math.inf
    gap = numpy.abs(wide_before[finite] - wide_after[finite]).max(initial=0.0)
    size = numpy.abs(wide_before[finite]).max(initial=0.0)
    return float(gap / size) if size else (math.inf if gap else 0.0)


def _numbers(data: bytes, kind: str) -> Any:
    """Bytes as an array; bfloat16 becomes float32."""
    import numpy

    if kind == "bf16":
        return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return numpy.frombuffer(data, kind)


def _archive(path: Path) -> Arrays:
    import numpy

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickled = [name for name in names if name.rpartition("/")[2] == "data.pkl"]
        if pickled:
            return _torch(archive, pickled[0])
        if "model.weights.h5" in names:
            return _hdf5(BytesIO(archive.read("model.weights.h5")))
    if names and all(name.endswith(".npy") for name in names):
        with numpy.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    raise Unreadable("it is a zip, and neither of NumPy, nor of torch.save, nor of Keras")


def _safetensors(path: Path) -> Arrays:
    found: Arrays = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _MOST_HEADER:
            raise Unreadable("its header is too long for safetensors")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] not in _SAFETENSORS:
                raise Unreadable(f"{name} has the type {entry['dtype']}")
            file.seek(8 + size + begin)
            found[name] = _numbers(file.read(end - begin), _SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
    return found


def _hdf5(source: Path | BytesIO) -> Arrays:
    try:
        import h5py
    except ImportError:
        raise Unreadable("HDF5 (Keras) is read with h5py, which is missing: pip install h5py") from None
    found: Arrays = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(source, "r") as file:
        file.visititems(visit)
    return found


# --- torch.save ------------------------------------------------------------------------------------------------------


def _torch(archive: zipfile.ZipFile, pickled: str) -> Arrays:
    folder = pickled.removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
        raise Unreadable("a big-endian machine has written it")
    value = _Unpickler(archive, folder, archive.read(pickled)).load()
    found: Arrays = dict(_flat(value, ""))
    if not found:
        raise Unreadable("it holds no tensors")
    return found


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All tensors and numbers in nested dicts and lists, by path."""
    import numpy

    if isinstance(value, numpy.ndarray):
        yield name, value
    elif isinstance(value, (bool, int, float)):
        yield name, numpy.asarray(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _flat(inner, f"{name}/{at}" if name else str(at))


class _Unpickler(pickle.Unpickler):
    """Knows tensors, ordered dicts and plain values: whatever else the pickle names is refused before it is made."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, pickled: bytes) -> None:
        super().__init__(BytesIO(pickled))
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return _tensor if name == "_rebuild_tensor_v2" else _parameter
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("torch", "Size"):
            return tuple
        raise Unreadable(f"it holds more than tensors: {module}.{name}. Save model.state_dict()")

    def persistent_load(self, pid: Any) -> Any:
        kind, storage, key, _, size = pid
        if kind != "storage" or storage not in _STORAGES.values() or not str(key).isdigit():
            raise Unreadable("it holds something else than tensors")
        return _numbers(self._archive.read(f"{self._folder}data/{key}"), cast(str, storage))[:size]


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: object) -> Any:
    """A view of the storage, as far as it reaches."""
    import numpy

    size, stride = tuple(map(int, size)), tuple(map(int, stride))
    if min((offset, *size, *stride)) < 0 or len(size) != len(stride):
        raise Unreadable("a tensor in it has an impossible shape")
    if 0 in size:
        return numpy.zeros(size, storage.dtype)
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if last >= len(storage):
        raise Unreadable("a tensor in it is larger than its data")
    steps = tuple(step * storage.itemsize for step in stride)
    return numpy.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)


def _parameter(data: Any, *_: object) -> Any:
    return data
