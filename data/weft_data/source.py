"""Sources: the classes of a data set, and for each split the images with the place of their bytes."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft_data.errors import DatasetError

TRAIN, VALIDATION, TEST = "train", "validation", "test"


class Item(NamedTuple):
    """An image: ``size`` bytes of the file ``path`` from ``offset``; the index of its class, its name in the class."""

    path: str
    offset: int
    size: int
    label: int
    name: str


class Image(NamedTuple):
    """The encoding of items that are image files."""


class Pixels(NamedTuple):
    """The encoding of items that are grey pixels: row by row, a byte each, in an IDX file.

    If the file is compressed as a whole, offsets count in its unpacked content.
    """

    width: int
    height: int


class Example(NamedTuple):
    """The encoding of items that are a serialised tf.train.Example, whose ``feature`` holds the image file."""

    feature: str


@dataclass(frozen=True)
class Source:
    """A data set in its original form.

    Attributes:
        kind: ``imagenet``, ``imagefolder``, ``mnist`` or ``tfrecords``.
        classes: in alphabetical order; an item's label is an index into it.
        splits: by name; only splits that have items.
        encoding: how to read the items' bytes.
        titles: class names for humans, by class.
        notes: messages for the user, such as the number of ignored files.
    """

    kind: str
    classes: Sequence[str]
    splits: Mapping[str, Sequence[Item]]
    encoding: Image | Pixels | Example = field(default_factory=Image)
    titles: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def count(self) -> int:
        """The number of images in all splits."""
        return sum(map(len, self.splits.values()))

    def fingerprint(self, options: Mapping[str, Any]) -> str:
        """A digest of the images (places, sizes, classes, names) and the options.

        Two runs have the same fingerprint if they prepare the same source in the same way.
        """
        digest = hashlib.sha256(repr((self.kind, self.encoding, tuple(self.classes), sorted(options.items()))).encode())
        for split in sorted(self.splits):
            for item in self.splits[split]:
                digest.update(f"\n{split}\0{item.offset}\0{item.size}\0{item.label}\0{item.name}".encode())
        return digest.hexdigest()


def class_names(names: Iterable[str]) -> list[str]:
    """The class names in alphabetical order.

    Raises:
        DatasetError: a name can't be a folder's name.
    """
    ordered = sorted(names)
    for name in ordered:
        if not name or name.startswith(".") or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
            raise DatasetError(
                f"{name!r} can't be the name of a class: expected a folder name that does not begin with a dot"
            )
    return ordered


def numbered(count: int) -> list[str]:
    """Numbers as class names, with enough digits to keep them in alphabetical order."""
    width = len(str(count - 1))
    return [f"{number:0{width}}" for number in range(count)]


class Names:
    """Makes image names from paths: letters, digits, ``_`` and ``-``, unique in their class."""

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
    """Split the items of each class into training and validation items.

    Every class with two items or more gives about the same share, and keeps at least one item of each kind.
    """
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
