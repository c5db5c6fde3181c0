"""The source ``tfrecords``: shards of TFRecords, from Weft or another program, to convert or to verify."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_data import tfrecord
from weft_data.errors import DatasetError
from weft_data.images import CorruptImage, to_jpeg
from weft_data.options import ImageOptions
from weft_data.source import TEST, TRAIN, VALIDATION, Example, Item, Names, Source, class_names, numbered
from weft_data.tfrecord import BrokenRecord

IMAGE, CLASS, NAME = "image", "class", "name"
_SPLIT = re.compile(r"(train|validation|val|valid|test)\b|(train|validation|val|valid|test)[-_]")
_SPLITS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "valid": VALIDATION, "test": TEST}
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(?:-(\d{6,}))?(?:\.tfrecords?)?")


@dataclass(frozen=True)
class Features:
    """The names of the features, and the number of the first class (1 if 0 is the background)."""

    image: str = IMAGE
    label: str = CLASS
    first_class: int = 0


def tfrecords(folder: Path, features: Features | None = None, *, classes: Sequence[str] | None = None) -> Source:
    """List the records of a folder of TFRecord files. The names of the files give the splits.

    Args:
        classes: the names of the classes, in the order of their numbers; default: the names in the ``dataset.json``
            beside the shards, or else numbers.

    Raises:
        DatasetError: there is no record, a file is damaged, a record lacks a feature, or a class has no name.
    """
    features = features or Features()
    if classes is None:
        classes = _known_classes(folder)
    found: list[tuple[str, str, int, int, int, str]] = []
    for path in shards(folder):
        split = _split_of(path.name)
        for number, record in enumerate(_records(path, check=False)):
            label, name = _label_and_name(path, number, record.content, features)
            found.append((split, str(path), record.offset, len(record.content), label, name))
    if not found:
        raise DatasetError(f"the TFRecord files in {folder} hold no record")
    most = max(label for *_, label, _ in found)
    given = list(classes) if classes is not None else numbered(most + 1)
    if most >= len(given):
        raise DatasetError(f"{folder} has records of class {most}, but there are names for {len(given)} classes only")
    ordered = class_names(given)
    place = [ordered.index(name) for name in given]
    splits: dict[str, list[Item]] = {}
    names = Names()
    for split, file, offset, size, label, name in found:
        items = splits.setdefault(split, [])
        own = name.partition("/")[2] or name or f"{len(items):08}"
        items.append(Item(file, offset, size, place[label], names(split, place[label], own)))
    return Source("tfrecords", ordered, splits, encoding=Example(features.image))


@dataclass(frozen=True)
class Verified:
    """The result of :func:`verify`: the number of images by split and class, and a sentence for each problem."""

    counts: dict[str, Counter[int]]
    files: int
    problems: tuple[str, ...]


def verify(
    folder: Path, features: Features | None = None, progress: Callable[[int], None] = lambda count: None
) -> Verified:
    """Check every record: its checksums, its features, and its image, which is decoded completely.

    The counts must match the names of the files, and ``dataset.json`` if there is one.

    Args:
        progress: called with the number of bytes that have just been read.

    Raises:
        DatasetError: there is no TFRecord file.
    """
    features = features or Features()
    counts: dict[str, Counter[int]] = {}
    problems: list[str] = []
    files = shards(folder)
    of: dict[str, tuple[int, int]] = {}
    for path in files:
        split = counts.setdefault(_split_of(path.name), Counter())
        seen = 0
        try:
            for seen, record in enumerate(_records(path), 1):
                label, _ = _label_and_name(path, seen - 1, record.content, features)
                split[label] += 1
                progress(len(record.content) + 16)
                try:
                    to_jpeg(image_of(record.content, features.image), ImageOptions())
                except (CorruptImage, BrokenRecord) as error:
                    problems.append(f"{path.name}: the image of record {seen - 1}: {error}")
        except DatasetError as error:
            problems.append(str(error))
        if match := _SHARD.fullmatch(path.name):
            shards_of, there = of.get(match[1], (int(match[2]), 0))
            of[match[1]] = (shards_of, there + 1)
            if match[3] and int(match[3]) != seen:
                problems.append(f"{path.name} holds {seen:,} records, but its name says {int(match[3]):,}")
    problems += [
        f"of {total} shards of {split!r} {there} are there" for split, (total, there) in of.items() if total != there
    ]
    if (about := _dataset(folder)) is not None:
        for name, split_about in about.get("splits", {}).items():
            wanted = split_about.get("class_counts")
            have = [counts.get(name, Counter())[label] for label in range(len(wanted or ()))]
            if have != wanted:
                problems.append(
                    f"dataset.json lists {split_about.get('records'):,} records in {name!r}, class by class, "
                    f"but there are {sum(counts.get(name, Counter()).values()):,}, or records of other classes"
                )
    return Verified(counts, len(files), tuple(problems))


def image_of(message: bytes, feature: str) -> bytes:
    """The image file in a serialised tf.train.Example.

    Raises:
        BrokenRecord: the feature is missing, or is not made of bytes.
    """
    values = tfrecord.features(message).get(feature)
    if not values or not isinstance(values[0], bytes):
        raise BrokenRecord(f"it has no feature {feature!r} of bytes")
    return values[0]


def shards(folder: Path) -> list[Path]:
    """The TFRecord files in a folder, by name.

    Raises:
        DatasetError: there are none.
    """
    if not folder.is_dir():
        raise DatasetError(f"there is no folder {folder}")
    found = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and (path.suffix in (".tfrecord", ".tfrecords") or _SHARD.fullmatch(path.name))
        and path.suffix != ".tar"
    )  # fmt: skip
    if not found:
        raise DatasetError(f"{folder} holds no TFRecord file: expected *.tfrecord, or names like train-00000-of-01024")
    return found


def _records(path: Path, *, check: bool = True) -> Iterator[tfrecord.TFRecord]:
    try:
        with path.open("rb") as file:
            yield from tfrecord.records(file, check=check)
    except (OSError, BrokenRecord) as error:
        raise DatasetError(f"{path}: {error}") from error


def _label_and_name(path: Path, number: int, message: bytes, features: Features) -> tuple[int, str]:
    try:
        found = tfrecord.features(message)
    except BrokenRecord as error:
        raise DatasetError(f"{path}, record {number}: {error}") from error
    number_of_class = next(iter(found.get(features.label, ())), None)
    if not isinstance(number_of_class, int) or features.image not in found:
        raise DatasetError(
            f"{path}, record {number}: expected features {features.image!r} (bytes) and {features.label!r} (int64); "
            f"it has {', '.join(map(repr, sorted(found))) or 'none'}; see --image-feature and --class-feature"
        )
    label = number_of_class - features.first_class
    if label < 0:
        raise DatasetError(
            f"{path}, record {number}: class {number_of_class} is below the first, {features.first_class}"
        )
    name = (found.get(NAME) or [b""])[0]
    return label, name.decode("utf-8", "replace") if isinstance(name, bytes) else ""


def _split_of(name: str) -> str:
    match = _SPLIT.match(name.lower())
    return _SPLITS[match[1] or match[2]] if match else TRAIN


def _dataset(folder: Path) -> dict[str, Any] | None:
    path = folder / "dataset.json"
    if not os.path.exists(path):
        return None
    try:
        about = json.loads(path.read_bytes())
    except ValueError as error:
        raise DatasetError(f"{path} is not JSON: {error}") from error
    return about if isinstance(about, dict) and about.get("format") == "weft-dataset" else None


def _known_classes(folder: Path) -> list[str] | None:
    about = _dataset(folder)
    classes = about.get("classes") if about else None
    return [str(name) for name in classes] if isinstance(classes, list) else None
