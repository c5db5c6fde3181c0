"""Render a miniature ILSVRC2012: its archives, with their names and structure, with nothing to download.

    python examples/data/imagenet.py FOLDER [--classes 10] [--train 40] [--validation 100] [--size 160]

These are drawings, not photographs: of each synset a shape and a texture of its own, each time in another place, size,
brightness and aspect ratio, always the same ones. What else the real archives are known for is there too: images in
grey, in CMYK, a PNG that is called .JPEG, one file that is cut off; the devkit's order of the synsets, which is not
the alphabetical one; and synsets with children, which have no images. Whatever reads the real archives reads these:

    weft data prepare imagenet FOLDER ./prepared --resize 224

Needs `pip install 'weft[data]'`.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from scipy.io import savemat

# The first of the devkit's synsets, in its order: ILSVRC2012_ID 1, 2, …
SYNSETS = {
    "n02119789": "kit fox, Vulpes macrotis",
    "n02100735": "English setter",
    "n02110185": "Siberian husky",
    "n02096294": "Australian terrier",
    "n02102040": "English springer, English springer spaniel",
    "n02066245": "grey whale, gray whale, devilfish, Eschrichtius gibbosus, Eschrichtius robustus",
    "n02509815": "lesser panda, red panda, panda, bear cat, cat bear, Ailurus fulgens",
    "n02124075": "Egyptian cat",
    "n02417914": "ibex, Capra ibex",
    "n02123394": "Persian cat",
    "n02125311": "cougar, puma, catamount, mountain lion, painter, panther, Felis concolor",
    "n02423022": "gazelle",
    "n02346627": "porcupine, hedgehog",
    "n02077923": "sea lion",
    "n02110063": "malamute, malemute, Alaskan malamute",
    "n02447366": "badger",
    "n02109047": "Great Dane",
    "n02089867": "Walker hound, Walker foxhound",
    "n02102177": "Welsh springer spaniel",
    "n02091134": "whippet",
}
PARENTS = {"n00001740": "entity", "n00015388": "animal, animate being, beast, brute, creature, fauna"}
DEVKIT = "ILSVRC2012_devkit_t12"
# Odd training images: (synset, image), both by number from 0.
CORRUPT, CMYK, PNG, GREY = (0, 1), (1, 0), (2, 0), (0, 0)


def draw(synset: int, random: np.random.Generator, size: int) -> Image.Image:
    """A picture of a synset, around ``size`` pixels high and wide."""
    width, height = (int(size * random.uniform(0.75, 1.3)) for _ in range(2))
    hue = (synset * 0.381966) % 1  # the golden section: any number of colours, all apart
    y, x = np.mgrid[0:height, 0:width] / size
    angle = synset * 0.7
    waves = np.sin((x * np.cos(angle) + y * np.sin(angle)) * (12 + 5 * (synset % 4)) + random.uniform(0, 6))
    noise = random.normal(0, 14, (height, width, 1))
    ground = random.uniform(60, 120) + 25 * waves[..., None] + noise
    picture = Image.fromarray(np.clip(np.repeat(ground, 3, axis=2), 0, 255).astype(np.uint8))
    radius = size * random.uniform(0.22, 0.34)
    centre = [side / 2 + random.normal(0, size * 0.06) for side in (width, height)]
    colour = Image.new("HSV", (1, 1), (int(hue * 255), 200, int(random.uniform(170, 255)))).convert("RGB")
    painter = ImageDraw.Draw(picture)
    painter.regular_polygon((*centre, radius), 3 + synset % 5, random.uniform(-20, 20), fill=colour.getpixel((0, 0)))
    return picture


def jpeg(picture: Image.Image, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, quality=90)
    return out.getvalue()


def training_image(synset: int, number: int, random: np.random.Generator, size: int) -> bytes:
    picture = draw(synset, random, size)
    if (synset, number) == CORRUPT:
        content = jpeg(picture)
        return content[: len(content) * 3 // 5]
    if (synset, number) == CMYK:
        return jpeg(picture.convert("CMYK"))
    if (synset, number) == PNG:
        return jpeg(picture, "PNG")
    return jpeg(picture.convert("L") if (synset, number) == GREY else picture)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def meta_mat(wnids: list[str], each: int) -> bytes:
    """The devkit's list: those with images first, then those that only group others."""
    rows = [(wnid, SYNSETS[wnid], 0, each) for wnid in wnids]
    rows += [(wnid, words, 2, 0) for wnid, words in PARENTS.items()]
    fields = [
        "ILSVRC2012_ID",
        "WNID",
        "words",
        "gloss",
        "num_children",
        "children",
        "wordnet_height",
        "num_train_images",
    ]
    synsets = np.empty((len(rows), 1), dtype=[(field, object) for field in fields])
    for number, (wnid, words, children, images) in enumerate(rows):
        values = (number + 1, wnid, words, "", children, np.arange(1, children + 1), int(children > 0), images)
        synsets[number, 0] = values
    out = io.BytesIO()
    savemat(out, {"synsets": synsets}, do_compression=True)
    return out.getvalue()


def write(folder: Path, classes: int = 10, train: int = 40, validation: int = 100, size: int = 160) -> None:
    """Write the three archives: ``train`` images a class, ``validation`` in all."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(2012)
    wnids = list(SYNSETS)[:classes]
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for wnid in sorted(wnids):
            synset = wnids.index(wnid)
            inner = io.BytesIO()
            with tarfile.open(mode="w", fileobj=inner) as tar:
                for number in range(train):
                    add(tar, f"{wnid}_{number * 7 + 3}.JPEG", training_image(synset, number, random, size))
            add(outer, f"{wnid}.tar", inner.getvalue())
    truth = [int(random.integers(classes)) for _ in range(validation)]
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as tar:
        for number in random.permutation(validation):  # the archive's order is not the numbers'
            add(tar, f"ILSVRC2012_val_{number + 1:08}.JPEG", jpeg(draw(truth[number], random, size)))
    with tarfile.open(folder / f"{DEVKIT}.tar.gz", "w:gz") as tar:
        add(tar, f"{DEVKIT}/data/meta.mat", meta_mat(wnids, train))
        lines = "".join(f"{synset + 1}\n" for synset in truth)
        add(tar, f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt", lines.encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Render a miniature ILSVRC2012.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--classes", type=int, default=10, choices=range(3, len(SYNSETS) + 1), metavar=f"3-{len(SYNSETS)}"
    )
    parser.add_argument("--train", type=int, default=40, help="images a class")
    parser.add_argument("--validation", type=int, default=100, help="images in all")
    parser.add_argument("--size", type=int, default=160, help="pixels, about")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.classes, chosen.train, chosen.validation, chosen.size)
    print(f"drew {chosen.classes * chosen.train:,} images to train on and {chosen.validation:,} to {chosen.folder}")
