"""`weft data prepare imagenet --resize 224` beside the loop that one writes for it: tarfile, Pillow, one process.

Both read the archives of a miniature ILSVRC2012 with images as large as the real ones, make them 224 × 224 and write
JPEGs of the same quality; the loop to files, Weft to TFRecord shards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageOps

from benchmarks.table import median, show, spread
from weft_data.imagenet import Archives, imagenet
from weft_data.options import ImageOptions, Options
from weft_data.run import prepare
from weft_data.targets import Folder

ROUNDS = 3
TRAIN, SIZE = 60, 430  # images of each of 10 classes; pixels, about
PROGRAM = Path(__file__).parents[1] / "examples/data/imagenet.py"


def measure(folder: Path) -> None:
    source = folder / "ilsvrc"
    sizes = ("--train", str(TRAIN), "--validation", "3", "--size", str(SIZE))
    subprocess.run([sys.executable, str(PROGRAM), str(source), *sizes], check=True, stdout=subprocess.DEVNULL)
    cores = len(os.sched_getaffinity(0))
    ways: dict[str, Callable[[Path], int]] = {
        "loop": lambda target: _loop(source, target),
        "1": lambda target: _weft(source, target, 1),
        str(cores): lambda target: _weft(source, target, cores),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, way in ways.items():
            begun = time.perf_counter()
            images = way(folder / f"{name}-{number}")
            rates[name].append(images / (time.perf_counter() - begun))
    base = median(rates["loop"])
    show(
        f"Prepare: {10 * TRAIN:,} images of about {SIZE} pixels to 224 × 224, images/s: median (min to max)",
        ["what", "images/s", "ratio"],
        [
            [
                "a loop over tarfile and Pillow" if name == "loop" else f"weft data prepare --processes {name}",
                spread(values, digits=0),
                f"{median(values) / base:.2f}",
            ]
            for name, values in rates.items()
        ],
    )


def _loop(source: Path, target: Path) -> int:
    images = 0
    with tarfile.open(source / "ILSVRC2012_img_train.tar") as outer:
        for synset in outer:
            folder = target / synset.name.removesuffix(".tar")
            folder.mkdir(parents=True)
            with tarfile.open(fileobj=outer.extractfile(synset)) as inner:
                for member in inner:
                    content = inner.extractfile(member)
                    assert content is not None
                    try:
                        image = Image.open(content).convert("RGB")
                    except OSError:
                        continue
                    fitted = ImageOps.fit(image, (224, 224), Image.Resampling.BICUBIC)
                    fitted.save(folder / member.name, "JPEG", quality=95)
                    images += 1
    return images


def _weft(source: Path, target: Path, processes: int) -> int:
    listed = imagenet(Archives.find(source))
    done = prepare(listed, Folder(target), Options(images=ImageOptions(resize=224), records=128), processes=processes)
    return done.records["train"]
