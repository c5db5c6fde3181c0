"""The user's choices for a data set. This module needs none of the extra packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Layout(StrEnum):
    """The layout of the prepared data set; ``docs/data.md`` defines each."""

    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"
    TFRECORDS = "tfrecords"


class ResizeMode(StrEnum):
    """How an image is made N × N."""

    CROP = "crop"  # the shorter side becomes N, and only the middle N × N is kept
    SHORT = "short"  # the shorter side becomes N, and the longer side keeps its proportion
    STRETCH = "stretch"  # both sides become N


@dataclass(frozen=True)
class ImageOptions:
    """What happens to each image.

    Attributes:
        resize: N, in pixels; None keeps the sizes, and also the bytes of images that are plain JPEGs already.
        quality: 1 to 100, of JPEGs that have to be re-encoded.
    """

    resize: int | None = None
    resize_mode: ResizeMode = ResizeMode.CROP
    quality: int = 95


@dataclass(frozen=True)
class Options:
    """How a data set is prepared; the same source and options give the same files.

    Attributes:
        records: maximum number of images per shard.
        seed: determines the order of the images, and which of them become validation images.
    """

    layout: Layout = Layout.TFRECORDS
    images: ImageOptions = field(default_factory=ImageOptions)
    records: int = 1024
    seed: int = 0

    def to_json(self) -> Mapping[str, Any]:
        """All options in one flat mapping."""
        values = asdict(self)
        images = values.pop("images")
        return {**values, **images}
