"""What a source is: classes, and for each split its images with the place where their bytes lie."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.errors import DatasetError

TRAIN, VALIDATION, TEST = "train", "validation", "test"


class Item(NamedTuple):
    """An image: ``size`` bytes of the file ``path`` from ``offset``; its class's index, its name in the class."""

    path: str
    offset: int
    size: int
    label: int
    name: str


class Image(NamedTuple):
    """How an item's bytes are to be understood: an image file."""


class Pixels(NamedTuple):
    """Grey pixels, row by row, a byte each; in an IDX file that may be compressed as a whole (then offsets count
    in what it unpacks to)."""

    width: int
    height: int


class Example(NamedTuple):
    """A serialised tf.train.Example with the image file in the feature of this name."""

    feature: str


@dataclass(frozen=True)
class Source:
    """A data set as it came.

    Attributes:
        kind: ``imagenet``, ``imagefolder``, ``mnist`` or ``tfrecords``.
        classes: in alphabetical order; an item's label is an index into it.
        splits: by name; only those that hold something.
        encoding: what the items' bytes are.
        titles: for humans, by class.
        notes: what the user should know, such as files that were passed over.
    """

    kind: str
    classes: Sequence[str]
    splits: Mapping[str, Sequence[Item]]
    encoding: Image | Pixels | Example = field(default_factory=Image)
    titles: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def count(self) -> int:
        """How many images there are in all splits."""
        return sum(map(len, self.splits.values()))

    def fingerprint(self, options: Mapping[str, Any]) -> str:
        """One for each list of images (places, sizes, classes, names) and options: what is prepared the same way
        from the same source has the same."""
        digest = hashlib.sha256(repr((self.kind, self.encoding, tuple(self.classes), sorted(options.items()))).encode())
        for split in sorted(self.splits):
            for item in self.splits[split]:
                digest.update(f"\n{split}\0{item.offset}\0{item.size}\0{item.label}\0{item.name}".encode())
        return digest.hexdigest()


def class_names(names: Iterable[str]) -> list[str]:
    """The class names in their order. Raises DatasetError for one that can't be a folder's name."""
    ordered = sorted(names)
    for name in ordered:
        if not name or name.startswith(".") or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
            raise DatasetError(f"{name!r} can't be the name of a class: it names a folder, not beginning with a dot")
    return ordered


def numbered(count: int) -> list[str]:
    """Names for classes that have none, with as many digits as keep them in alphabetical order."""
    width = len(str(count - 1))
    return [f"{number:0{width}}" for number in range(count)]


class Names:
    """Makes names of images from paths: of letters, digits, ``_`` and ``-``, and no two the same in a class."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, int, str]] = set()

    def __call__(self, split: str, label: int, path: str) -> str:
        """The name of the image at ``path`` (relative to its class, with or without an extension)."""
        stem, dot, extension = path.rpartition(".")
        base = re.sub(r"[^\w-]", "_", stem if dot and "/" not in extension else path)
        name, n = base, 1
        while (split, label, name.casefold()) in self._taken:
            n += 1
            name = f"{base}-{n}"
        self._taken.add((split, label, name.casefold()))
        return name


def split_off(items: Sequence[Item], share: float, seed: int) -> tuple[list[Item], list[Item]]:
    """Training and validation items: of every class with two or more the same share, at least one of each kind."""
    by_class: dict[int, list[Item]] = {}
    for item in items:
        by_class.setdefault(item.label, []).append(item)
    training: list[Item] = []
    validation: list[Item] = []
    for label, group in sorted(by_class.items()):
        wanted = min(max(round(len(group) * share), 1), len(group) - 1) if share > 0 else 0
        chosen = set(random.Random(f"{seed}/{label}").sample(range(len(group)), wanted))  # noqa: S311
        for number, item in enumerate(group):
            (validation if number in chosen else training).append(item)
    return training, validation
