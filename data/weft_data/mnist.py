"""The source ``mnist``: IDX files, the published form of MNIST, Fashion-MNIST, KMNIST and EMNIST.

An IDX file has two zero bytes, a type (8: bytes), the number of axes, their sizes (uint32, big endian) and the values.
It may be compressed with gzip. See http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from weft_data.errors import DatasetError
from weft_data.source import TRAIN, VALIDATION, Item, Pixels, Source, numbered

_NAME = re.compile(r"(?P<stem>.*)(?P<split>train|t10k|test)-(?P<kind>images[-.]idx3|labels[-.]idx1)-ubyte(\.gz)?")
_LARGEST = 4 << 30  # bytes of an unpacked file


class _Idx(NamedTuple):
    shape: tuple[int, ...]
    offset: int  # of the values


def mnist(folder: Path) -> Source:
    """List a folder with ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, each plain or ``.gz``.

    Files that begin with ``t10k`` instead of ``train`` become the split ``validation``.

    Raises:
        DatasetError: files are missing, are not IDX files, or don't fit together.
    """
    if not folder.is_dir():
        raise DatasetError(f"there is no folder {folder}")
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if match := _NAME.fullmatch(path.name):
            key = (TRAIN if match["split"] == "train" else VALIDATION, match["kind"][:6])
            if key in files and files[key].name.removesuffix(".gz") != path.name.removesuffix(".gz"):
                raise DatasetError(f"{folder} holds both {files[key].name} and {path.name}; remove one of them")
            files.setdefault(key, path)
    splits, shapes, labels = {}, set(), {}
    for split, name in ((TRAIN, "train"), (VALIDATION, "t10k")):
        pair = [files.get((split, kind)) for kind in ("images", "labels")]
        images, marks = pair
        if images is None and marks is None and split == VALIDATION:
            continue
        if images is None or marks is None:
            missing = f"{name}-images-idx3-ubyte" if images is None else f"{name}-labels-idx1-ubyte"
            raise DatasetError(f"{folder} lacks {missing} (plain, or with .gz)")
        pixels, values = _header(images, 3), _header(marks, 1)
        if pixels.shape[0] != values.shape[0]:
            raise DatasetError(f"{images} holds {pixels.shape[0]:,} images, but {marks} {values.shape[0]:,} labels")
        shapes.add(pixels.shape[1:])
        labels[split] = content(str(marks))[values.offset :]
        splits[split] = (str(images), pixels)
    if len(shapes) != 1:
        raise DatasetError(f"the images in {folder} differ in size: {' and '.join(map(str, sorted(shapes)))}")
    ((height, width),) = shapes
    count = max(max(marks, default=0) for marks in labels.values()) + 1
    digits = len(str(max(header.shape[0] for _, header in splits.values())))
    items = {
        split: [
            Item(path, header.offset + number * width * height, width * height, label, f"{number:0{digits}}")
            for number, label in enumerate(labels[split])
        ]
        for split, (path, header) in splits.items()
    }
    return Source("mnist", numbered(max(count, 10)), items, encoding=Pixels(width, height))


@lru_cache(maxsize=2)
def content(path: str) -> bytes:
    """The unpacked content of an IDX file.

    Raises:
        DatasetError: the file can't be read, or is too large.
    """
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} can't be read: {error}") from error
    if len(data) > _LARGEST:
        raise DatasetError(f"{path} unpacks to more than {_LARGEST >> 30} GiB")
    return data


def _header(path: Path, axes: int) -> _Idx:
    data = content(str(path))
    if data[:4] != bytes([0, 0, 8, axes]) or len(data) < 4 + 4 * axes:
        raise DatasetError(f"{path} is not an IDX file of bytes with {axes} axes: it begins with {data[:4].hex(' ')}")
    shape = struct.unpack_from(f">{axes}I", data, 4)
    offset = 4 + 4 * axes
    if not all(shape) or len(data) - offset != math.prod(shape):
        raise DatasetError(f"{path} should hold {' × '.join(map(str, shape))} bytes, but holds {len(data) - offset:,}")
    return _Idx(shape, offset)
