"""A miniature ILSVRC2012, drawn once a session by the example's own program, and small images."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from weft_data.options import ImageOptions, Layout, Options
from weft_data.run import Summary, prepare
from weft_data.source import Source
from weft_data.targets import Folder

REPOSITORY = Path(__file__).parents[2]
CLASSES, TRAIN, VALIDATION = 5, 12, 20


def drawn(folder: Path, **sizes: int) -> None:
    """Run examples/data/imagenet.py."""
    spec = importlib.util.spec_from_file_location("mini_imagenet", REPOSITORY / "examples/data/imagenet.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.write(folder, **sizes)


@pytest.fixture(scope="session")
def ilsvrc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archives: 5 synsets of 12 images, of which one is cut off; 20 validation images."""
    folder = tmp_path_factory.mktemp("ilsvrc")
    drawn(folder, classes=CLASSES, train=TRAIN, validation=VALIDATION, size=48)
    return folder


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[Path, Summary]]:
    """Prepares a source into a new folder, in this process's children."""

    def make(source: Source, layout: Layout, name: str = "", records: int = 7, **images: Any) -> tuple[Path, Summary]:
        folder = tmp_path / "made" / (name or layout)
        options = Options(layout, ImageOptions(**images), records, seed=1)
        return folder, prepare(source, Folder(folder), options, processes=2)

    return make


def picture(seed: int = 0, size: tuple[int, int] = (20, 16), mode: str = "RGB", kind: str = "JPEG") -> bytes:
    """An image file: smooth, so that JPEG changes it little."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    random = np.random.default_rng(seed)
    planes = [(random.uniform(40, 200) + random.uniform(-2, 2) * x + random.uniform(-2, 2) * y) for _ in range(3)]
    out = io.BytesIO()
    image = Image.fromarray(np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)).convert(mode)
    image.save(out, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return out.getvalue()


def class_folders(folder: Path, classes: Mapping[str, int]) -> Path:
    """So many images in a folder of each class."""
    for number, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for image in range(count):
            (folder / name / f"{image}.jpg").write_bytes(picture(1000 * number + image))
    return folder


def tar_of(path: Path, *entries: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    """An archive; an entry is a name and its content, or a header alone."""
    with tarfile.open(path, "w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return path


def pixels(jpeg: bytes) -> np.ndarray:
    """(height, width, 3), 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).astype(int)
