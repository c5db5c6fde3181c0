"""Draw ten kinds of things in CIFAR-10's own binary format, with nothing to download.

    python examples/data/cifar10.py FOLDER [--batch 1000] [--seed 1]

These are drawings, not photographs: a silhouette for each of CIFAR-10's classes, each time in another size, place,
angle and colour, before another background, with noise on top; nothing but the shape tells the class. The files have
the names and the format of https://www.cs.toronto.edu/~kriz/cifar.html ("binary version"): data_batch_1.bin to
data_batch_5.bin and test_batch.bin, in which each record is one byte for the class and 3,072 for the 32×32 pixels (all
red values row by row, then green, then blue), and batches.meta.txt with the classes' names. What reads these reads
those.

Needs Pillow: `pip install "weft[demo]"`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE, FINE = 32, 4  # pixels, and how many times finer is drawn
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]

Outline = list[tuple[float, float]]
BODY, DETAIL = 0, 1  # in which of two colours an outline is filled


def oval(x: float, y: float, width: float, height: float) -> Outline:
    """Centre and radii → an outline of 20 corners."""
    turns = [2 * math.pi * corner / 20 for corner in range(20)]
    return [(x + width * math.cos(turn), y + height * math.sin(turn)) for turn in turns]


def box(left: float, top: float, right: float, bottom: float) -> Outline:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def legs(top: float, *lefts: float) -> list[tuple[int, Outline]]:
    return [(BODY, box(left, top, left + 0.06, 0.93)) for left in lefts]


# In a square from 0 to 1, x to the right, y down; painted in this order.
THINGS: dict[str, list[tuple[int, Outline]]] = {
    "airplane": [
        (BODY, oval(0.50, 0.50, 0.47, 0.07)),
        (BODY, [(0.58, 0.50), (0.42, 0.50), (0.28, 0.10), (0.40, 0.10)]),
        (BODY, [(0.58, 0.50), (0.42, 0.50), (0.28, 0.90), (0.40, 0.90)]),
        (BODY, [(0.16, 0.50), (0.06, 0.50), (0.02, 0.26), (0.09, 0.26)]),
        (BODY, [(0.16, 0.50), (0.06, 0.50), (0.02, 0.74), (0.09, 0.74)]),
    ],
    "automobile": [
        (BODY, [(0.02, 0.50), (0.22, 0.47), (0.36, 0.28), (0.68, 0.28), (0.80, 0.47), (0.98, 0.52), (0.98, 0.72),
                (0.02, 0.72)]),
        (DETAIL, [(0.29, 0.46), (0.39, 0.33), (0.50, 0.33), (0.50, 0.46)]),
        (DETAIL, [(0.54, 0.46), (0.54, 0.33), (0.65, 0.33), (0.74, 0.46)]),
        (DETAIL, oval(0.23, 0.73, 0.11, 0.11)),
        (DETAIL, oval(0.78, 0.73, 0.11, 0.11)),
    ],
    "bird": [
        (BODY, oval(0.45, 0.52, 0.27, 0.17)),
        (BODY, oval(0.74, 0.32, 0.12, 0.12)),
        (BODY, [(0.58, 0.42), (0.68, 0.28), (0.78, 0.42), (0.66, 0.56)]),
        (DETAIL, [(0.84, 0.28), (0.99, 0.34), (0.84, 0.38)]),
        (BODY, [(0.26, 0.46), (0.01, 0.36), (0.05, 0.56), (0.26, 0.60)]),
        (DETAIL, box(0.40, 0.67, 0.43, 0.92)),
        (DETAIL, box(0.52, 0.67, 0.55, 0.92)),
    ],
    "cat": [
        (BODY, oval(0.50, 0.55, 0.36, 0.33)),
        (BODY, [(0.16, 0.48), (0.14, 0.06), (0.46, 0.28)]),
        (BODY, [(0.84, 0.48), (0.86, 0.06), (0.54, 0.28)]),
        (DETAIL, oval(0.36, 0.50, 0.06, 0.08)),
        (DETAIL, oval(0.64, 0.50, 0.06, 0.08)),
        (DETAIL, [(0.44, 0.66), (0.56, 0.66), (0.50, 0.74)]),
    ],
    "deer": [
        (BODY, oval(0.40, 0.58, 0.28, 0.13)),
        (BODY, [(0.54, 0.54), (0.70, 0.30), (0.80, 0.34), (0.66, 0.64)]),
        (BODY, oval(0.80, 0.34, 0.13, 0.07)),
        *legs(0.62, 0.16, 0.27, 0.50, 0.60),
        (DETAIL, [(0.72, 0.30), (0.62, 0.02), (0.66, 0.02), (0.76, 0.28)]),
        (DETAIL, [(0.68, 0.18), (0.50, 0.08), (0.52, 0.05), (0.68, 0.14)]),
        (DETAIL, [(0.76, 0.29), (0.86, 0.02), (0.90, 0.04), (0.80, 0.30)]),
    ],
    "dog": [
        (BODY, oval(0.50, 0.46, 0.29, 0.34)),
        (DETAIL, oval(0.17, 0.48, 0.10, 0.28)),
        (DETAIL, oval(0.83, 0.48, 0.10, 0.28)),
        (DETAIL, oval(0.40, 0.38, 0.05, 0.05)),
        (DETAIL, oval(0.60, 0.38, 0.05, 0.05)),
        (BODY, oval(0.50, 0.72, 0.19, 0.19)),
        (DETAIL, oval(0.50, 0.64, 0.10, 0.07)),
    ],
    "frog": [
        (BODY, oval(0.50, 0.64, 0.34, 0.20)),
        (BODY, oval(0.30, 0.40, 0.12, 0.12)),
        (BODY, oval(0.70, 0.40, 0.12, 0.12)),
        (DETAIL, oval(0.30, 0.39, 0.06, 0.06)),
        (DETAIL, oval(0.70, 0.39, 0.06, 0.06)),
        (DETAIL, [(0.26, 0.62), (0.50, 0.70), (0.74, 0.62), (0.50, 0.76)]),
        (BODY, [(0.24, 0.66), (0.00, 0.60), (0.06, 0.92), (0.30, 0.92), (0.16, 0.80)]),
        (BODY, [(0.76, 0.66), (1.00, 0.60), (0.94, 0.92), (0.70, 0.92), (0.84, 0.80)]),
    ],
    "horse": [
        (BODY, oval(0.44, 0.50, 0.30, 0.17)),
        (BODY, [(0.58, 0.46), (0.70, 0.12), (0.80, 0.10), (0.98, 0.32), (0.92, 0.38), (0.80, 0.30), (0.70, 0.58)]),
        (DETAIL, [(0.54, 0.42), (0.66, 0.08), (0.72, 0.12), (0.62, 0.46)]),
        (DETAIL, [(0.18, 0.40), (0.02, 0.50), (0.04, 0.82), (0.14, 0.54)]),
        *legs(0.58, 0.18, 0.30, 0.54, 0.65),
    ],
    "ship": [
        (BODY, [(0.02, 0.62), (0.98, 0.62), (0.84, 0.90), (0.16, 0.90)]),
        (DETAIL, box(0.24, 0.44, 0.76, 0.62)),
        (BODY, box(0.34, 0.30, 0.60, 0.44)),
        (DETAIL, box(0.42, 0.06, 0.53, 0.30)),
    ],
    "truck": [
        (BODY, box(0.02, 0.14, 0.64, 0.72)),
        (DETAIL, [(0.68, 0.32), (0.86, 0.32), (0.98, 0.52), (0.98, 0.72), (0.68, 0.72)]),
        (BODY, [(0.74, 0.38), (0.83, 0.38), (0.90, 0.52), (0.74, 0.52)]),
        (BODY, oval(0.18, 0.76, 0.12, 0.12)),
        (BODY, oval(0.46, 0.76, 0.12, 0.12)),
        (BODY, oval(0.82, 0.76, 0.12, 0.12)),
    ],
}  # fmt: skip


def colours(random: np.random.Generator) -> np.ndarray:
    """Two for the background, one for the thing's body and one for its details, (4, 3) from 0 to 255: any hues, but
    the body is darker or lighter than what is behind it, and the details are than the body."""
    light = random.choice([(75, 75, 185, 60), (185, 185, 75, 200)]) + random.uniform(-25, 25, 4)
    return np.clip(light[:, None] + random.uniform(-45, 45, (4, 3)), 0, 255)


def draw(thing: list[tuple[int, Outline]], random: np.random.Generator) -> np.ndarray:
    """One picture, (32, 32, 3), as bytes."""
    top, bottom, *filling = colours(random)
    fall = np.linspace(0, 1, SIZE * FINE)[:, None, None]
    background = np.broadcast_to(top + (bottom - top) * fall, (SIZE * FINE, SIZE * FINE, 3))
    canvas = Image.fromarray(np.rint(background).astype(np.uint8))
    pen = ImageDraw.Draw(canvas)
    turn, scale = random.normal(0, 0.12), random.uniform(0.7, 1.0, 2) * (random.choice([-1, 1]), 1)
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    centre = 0.5 + random.uniform(-0.5, 0.5, 2) * (1 - np.abs(scale))
    for colour, outline in thing:
        corners = (np.array(outline) - 0.5) * scale @ rotation + centre + random.normal(0, 0.008, (len(outline), 2))
        pen.polygon([*(corners * SIZE * FINE).ravel()], fill=tuple(int(part) for part in filling[colour]))
    picture = np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.BOX)).astype(np.float64)
    return np.clip(np.rint(picture + random.normal(0, 8, picture.shape)), 0, 255).astype(np.uint8)


def records(labels: np.ndarray, images: np.ndarray) -> bytes:
    """Labels (n) and images (n, 32, 32, 3) as CIFAR-10's records."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1).tobytes()


def write(folder: Path, batch: int = 1000, seed: int = 1) -> None:
    """Write the six batches of ``batch`` images, every class in the same share, and the classes' names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta.txt").write_text("".join(f"{name}\n" for name in THINGS))
    random = np.random.default_rng(seed)
    things = list(THINGS.values())
    for name in BATCHES:
        labels = random.permutation(np.arange(batch) % len(things))
        images = np.stack([draw(things[label], random) for label in labels])
        (folder / name).write_bytes(records(labels, images))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw ten kinds of things in CIFAR-10's own binary format.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, default=1000, help="images in each of the six files; CIFAR-10 has 10,000")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.batch < len(THINGS):
        parser.error(f"--batch: at least {len(THINGS)}, one for each class")
    write(args.folder, args.batch, args.seed)
    print(f"drew {5 * args.batch:,} images to train on and {args.batch:,} held out in {args.folder}")
