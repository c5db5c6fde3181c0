"""Units of work: some images of a split, which one process decodes and writes to a shard (or to a file each).

The result depends only on the images and the options, so making a unit twice gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

from weft_data import mnist, tfrecord
from weft_data.errors import DatasetError
from weft_data.images import CorruptImage, Jpeg, grey_to_jpeg, to_jpeg
from weft_data.options import ImageOptions, Layout
from weft_data.records import CLASS, IMAGE, NAME, image_of
from weft_data.source import Image, Item, Pixels, Source
from weft_data.tfrecord import BrokenRecord


@dataclass(frozen=True)
class Unit:
    """The ``index``-th of ``of`` units of a split."""

    split: str
    index: int
    of: int
    items: Sequence[Item]

    @property
    def stem(self) -> str:
        """The beginning of its shard's name."""
        return f"{self.split}-{self.index:05}-of-{self.of:05}"


@dataclass(frozen=True)
class Recipe:
    """How units are written; ``classes`` and ``encoding`` are the source's."""

    layout: Layout
    images: ImageOptions
    classes: Sequence[str]
    encoding: Any


@dataclass(frozen=True, slots=True)  # an image folder has a million of them
class Written:
    """A file: its name in the target, its bytes, the number of images in it, and the SHA-256 if it is a shard."""

    name: str
    bytes: int
    records: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """An image in ``report.json``: left out because it is corrupt, or converted; and why."""

    split: str
    image: str  # class/name
    source: str  # the file that holds it, and the place in that file
    reason: str


@dataclass(frozen=True)
class Outcome:
    """The result of a unit."""

    stem: str
    split: str
    files: Sequence[Written]
    class_counts: dict[int, int]
    corrupt: Sequence[Noted]
    recoded: Sequence[Noted]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Outcome:
        return cls(
            raw["stem"],
            raw["split"],
            [Written(**file) for file in raw["files"]],
            {int(label): count for label, count in raw["class_counts"].items()},
            [Noted(**image) for image in raw["corrupt"]],
            [Noted(**image) for image in raw["recoded"]],
        )


def units(source: Source, records: int, seed: int) -> list[Unit]:
    """The images of each split, in an order that depends on the seed, in units of about equal size.

    A unit has ``records`` images at most.
    """
    made = []
    for split, items in source.splits.items():
        order = list(items)
        random.Random(f"{seed}/{split}").shuffle(order)  # noqa: S311
        of = -(-len(order) // records)
        for index in range(of):
            part = order[index * len(order) // of : (index + 1) * len(order) // of]
            made.append(Unit(split, index, of, part))
    return made


def make(unit: Unit, recipe: Recipe, folder: Path, tick: Callable[[], None]) -> Outcome:
    """Decode a unit's images and write them into ``folder``. A corrupt image is not an error.

    Args:
        tick: called after each image.

    Raises:
        DatasetError: the source can't be read, or ``folder`` can't be written.
    """
    corrupt: list[Noted] = []
    recoded: list[Noted] = []
    counts: Counter[int] = Counter()
    try:
        with _WRITERS[recipe.layout](folder, unit) as writer, _Reader() as reader:
            for item in unit.items:
                name = f"{recipe.classes[item.label]}/{item.name}"
                where = f"{item.path} at {item.offset:,}" if item.offset else item.path
                try:
                    jpeg = _jpeg(reader, item, recipe)
                except (CorruptImage, BrokenRecord) as error:
                    corrupt.append(Noted(unit.split, name, where, str(error)))
                else:
                    if jpeg.recoded:
                        recoded.append(Noted(unit.split, name, where, jpeg.recoded))
                    counts[item.label] += 1
                    writer.add(name, item.label, jpeg.content)
                tick()
            files = writer.finish()
    except OSError as error:
        raise DatasetError(f"{error.filename or folder}: {error.strerror or error}") from error
    return Outcome(unit.stem, unit.split, files, dict(sorted(counts.items())), corrupt, recoded)


def _jpeg(reader: _Reader, item: Item, recipe: Recipe) -> Jpeg:
    if isinstance(recipe.encoding, Pixels):
        pixels = mnist.content(item.path)[item.offset : item.offset + item.size]
        return grey_to_jpeg(pixels, recipe.encoding.width, recipe.encoding.height, recipe.images)
    if isinstance(recipe.encoding, Image):
        return to_jpeg(reader.read(item), recipe.images)
    message = tfrecord.intact(reader.read(item, tfrecord.FOOTER))
    return to_jpeg(image_of(message, recipe.encoding.feature), recipe.images)


class _Reader:
    """Reads items. It keeps the last file open, because the images of a unit often come from one archive."""

    def __init__(self) -> None:
        self._path = ""
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, item: Item, beyond: int = 0) -> bytes:
        """The item's bytes and ``beyond`` bytes after them."""
        if self._file is None or self._path != item.path:
            self.__exit__()
            self._file, self._path = open(item.path, "rb"), item.path  # noqa: SIM115
        self._file.seek(item.offset)
        content = self._file.read(item.size + beyond)
        if len(content) < item.size + beyond:
            raise DatasetError(f"{item.path} has become shorter since the command listed it")
        return content


class _Writer(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def add(self, name: str, label: int, jpeg: bytes) -> None: ...
    def finish(self) -> list[Written]: ...


class _Files:
    """``<split>/<class>/<name>.JPEG``"""

    def __init__(self, folder: Path, unit: Unit) -> None:
        self._folder = folder
        self._unit = unit
        self._written: list[Written] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, name: str, label: int, jpeg: bytes) -> None:
        path = self._folder / self._unit.split / f"{name}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
        self._written.append(Written(f"{self._unit.split}/{name}.JPEG", len(jpeg), 1))

    def finish(self) -> list[Written]:
        return self._written


class _Shard(ABC):
    """A file with a checksum. Its name contains the number of its records, so the file is renamed at the end."""

    suffix = ""

    def __init__(self, folder: Path, unit: Unit) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._unit = unit
        self._path = folder / f"{unit.stem}{self.suffix}"
        self._file = self._path.open("wb")
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @abstractmethod
    def add(self, name: str, label: int, jpeg: bytes) -> None: ...

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        self._bytes += len(content)
        return self._file.write(content)

    def finish(self) -> list[Written]:
        self._file.close()
        if not self._records:  # nothing but corrupt images
            self._path.unlink()
            return []
        name = f"{self._unit.stem}-{self._records:06}{self.suffix}"
        self._path.rename(self._folder / name)
        return [Written(name, self._bytes, self._records, self._digest.hexdigest())]


class _TfRecords(_Shard):
    suffix = ".tfrecord"

    def add(self, name: str, label: int, jpeg: bytes) -> None:
        self._records += 1
        self.write(tfrecord.framed(tfrecord.example({IMAGE: jpeg, CLASS: label, NAME: name.encode()})))


class _WebDataset(_Shard):
    suffix = ".tar"

    def __init__(self, folder: Path, unit: Unit) -> None:
        super().__init__(folder, unit)
        # A stream writes to this object as it goes. Without dates and owners, the same images give the same bytes.
        self._tar = tarfile.open(mode="w|", fileobj=self, format=tarfile.PAX_FORMAT)  # type: ignore[call-overload]  # noqa: SIM115

    def add(self, name: str, label: int, jpeg: bytes) -> None:
        self._records += 1
        for suffix, content in (("jpg", jpeg), ("cls", str(label).encode())):
            info = tarfile.TarInfo(f"{name}.{suffix}")
            info.size = len(content)
            self._tar.addfile(info, io.BytesIO(content))
        self._tar.members = []  # or it would keep every header

    def finish(self) -> list[Written]:
        self._tar.close()
        return super().finish()


_WRITERS: dict[Layout, Callable[[Path, Unit], _Writer]] = {
    Layout.IMAGEFOLDER: _Files,
    Layout.WEBDATASET: _WebDataset,
    Layout.TFRECORDS: _TfRecords,
}
