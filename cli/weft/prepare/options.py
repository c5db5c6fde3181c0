"""What the user chooses about a data set; here is nothing that needs the extra packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Layout(StrEnum):
    """What is written; ``docs/data.md`` is exact about each."""

    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"
    TFRECORDS = "tfrecords"


class ResizeMode(StrEnum):
    """How an image becomes a square of N × N, or nearly one."""

    CROP = "crop"  # the shorter side becomes N, and the middle N × N stays
    SHORT = "short"  # the shorter side becomes N, the longer one keeps its proportion
    STRETCH = "stretch"  # both sides become N


@dataclass(frozen=True)
class ImageOptions:
    """What is done to each image.

    Attributes:
        resize: N, in pixels; None keeps sizes, and also the bytes of what is a fine JPEG already.
        quality: JPEG's, 1 to 100, of what has to be encoded anew.
    """

    resize: int | None = None
    resize_mode: ResizeMode = ResizeMode.CROP
    quality: int = 95


@dataclass(frozen=True)
class Options:
    """What a data set becomes; the same source and options give the same files.

    Attributes:
        records: images a shard at most.
        seed: of the order of the images, and of the choice for validation.
    """

    layout: Layout = Layout.TFRECORDS
    images: ImageOptions = field(default_factory=ImageOptions)
    records: int = 1024
    seed: int = 0

    def to_json(self) -> Mapping[str, Any]:
        """All of them, flat."""
        values = asdict(self)
        images = values.pop("images")
        return {**values, **images}
