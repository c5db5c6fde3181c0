"""Draw faces of cats and dogs as a folder of JPEG images for each class, with nothing to download.

    python examples/data/cats_dogs.py FOLDER [--each 400] [--seed 1]
    python examples/data/cats_dogs.py FOLDER --others            # six other animals, to pretrain a network on

These are drawings, not photographs: each time other proportions, colours, patterns, sizes and backgrounds, and no
colour belongs to an animal. What tells a cat from a dog is what tells them in a drawing: pointed ears that stand, slit
pupils and whiskers, or ears that hang, round pupils and a large nose on a muzzle. Whatever reads a folder of class
folders reads these; `weft data prepare` makes TFRecords of them.

Needs Pillow: `pip install "weft[demo]"`.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

FINE = 3  # times finer is drawn
SMALLEST, LARGEST = 96, 144  # pixels of an image's side


@dataclass(frozen=True)
class Animal:
    """A face in a square from -1 to 1, x to the right, y down."""

    head: tuple[float, float]  # radii
    ear: tuple[tuple[float, float], ...]  # corners of the right one; the left one mirrors it
    rounded: bool = False  # the ear is the oval in the box of its first and last corner
    slit: bool = False  # pupils
    eye: float = 0.10
    muzzle: tuple[float, float] = (0.0, 0.0)  # radii
    nose: tuple[float, float] = (0.09, 0.06)
    beak: bool = False
    whiskers: bool = False


PETS = {
    "cat": Animal((0.60, 0.52), ((0.12, -0.42), (0.58, -0.92), (0.60, -0.12)), slit=True, whiskers=True),
    "dog": Animal((0.50, 0.60), ((0.38, -0.50), (0.78, 0.38)), rounded=True, muzzle=(0.30, 0.26), nose=(0.16, 0.11)),
}
OTHERS = {
    "bear": Animal((0.60, 0.56), ((0.30, -0.76), (0.72, -0.34)), rounded=True, eye=0.07, muzzle=(0.26, 0.22)),
    "fox": Animal((0.58, 0.44), ((0.20, -0.34), (0.62, -0.88), (0.62, -0.04)), slit=True, muzzle=(0.16, 0.42)),
    "mouse": Animal((0.42, 0.46), ((0.22, -0.86), (0.92, -0.14)), rounded=True, eye=0.08, whiskers=True),
    "owl": Animal((0.58, 0.60), ((0.22, -0.52), (0.56, -0.78), (0.54, -0.30)), eye=0.20, beak=True),
    "pig": Animal((0.58, 0.54), ((0.20, -0.46), (0.66, -0.62), (0.52, -0.16)), eye=0.06, nose=(0.24, 0.17)),
    "rabbit": Animal((0.44, 0.46), ((0.10, -0.98), (0.36, -0.26)), rounded=True, nose=(0.06, 0.05), whiskers=True),
}

Colour = tuple[int, int, int]


class Pen:
    """Draws on a picture in the face's own coordinates: turned, scaled and shifted as a whole."""

    def __init__(self, canvas: Image.Image, random: np.random.Generator) -> None:
        self.draw, self.random = ImageDraw.Draw(canvas), random
        side, turn = canvas.width, random.normal(0, 0.15)
        self.scale = side / 2 * random.uniform(0.62, 0.95) * random.uniform(0.92, 1.08, 2)
        self.turn = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        self.centre = side * (0.5 + random.uniform(-0.06, 0.06, 2))

    def polygon(self, corners: np.ndarray, colour: Colour) -> None:
        corners = corners + self.random.normal(0, 0.012, corners.shape)
        self.draw.polygon([*(corners * self.scale @ self.turn + self.centre).ravel()], fill=colour)

    def oval(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        turns = np.linspace(0, 2 * math.pi, 24, endpoint=False)
        self.polygon(np.stack([x + width * np.cos(turns), y + height * np.sin(turns)], axis=1), colour)

    def line(self, start: tuple[float, float], end: tuple[float, float], colour: Colour) -> None:
        ends = np.array([start, end]) * self.scale @ self.turn + self.centre
        self.draw.line([*ends.ravel()], fill=colour, width=max(1, round(self.scale[0] * 0.03)))


def shade(colour: np.ndarray, by: float) -> Colour:
    """Darker below 1, lighter above."""
    red, green, blue = (int(min(255, max(0, part * by))) for part in colour)
    return red, green, blue


def scenery(side: int, random: np.random.Generator) -> Image.Image:
    """A background: one colour fading into another, with a few spots."""
    start, end = random.uniform(30, 230, (2, 3))
    fall = np.linspace(0, 1, side)[:, None, None]
    canvas = Image.fromarray(np.broadcast_to(start + (end - start) * fall, (side, side, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(canvas)
    for _ in range(random.integers(2, 7)):
        x, y, size = random.uniform(0, side, 3) * (1, 1, 0.2)
        pen.ellipse([x - size, y - size, x + size, y + size], fill=shade(random.uniform(20, 240, 3), 1))
    return canvas.filter(ImageFilter.GaussianBlur(side / 60))


def ears(pen: Pen, animal: Animal, fur: np.ndarray) -> None:
    corners = np.array(animal.ear)
    for side in (-1, 1):
        if animal.rounded:
            (x, y), (width, height) = corners.mean(axis=0), (corners[1] - corners[0]) / 2
            pen.oval(side * x, y, width, height, shade(fur, 0.75))
            pen.oval(side * x, y, width * 0.55, height * 0.65, shade(fur, 1.15))
        else:
            pen.polygon(corners * (side, 1), shade(fur, 0.85))
            inner = corners.mean(axis=0) + (corners - corners.mean(axis=0)) * 0.5
            pen.polygon(inner * (side, 1), shade(fur, 1.2))


def eyes(pen: Pen, animal: Animal, random: np.random.Generator) -> None:
    iris, size = random.uniform(90, 250, 3), animal.eye * random.uniform(0.85, 1.15)
    x, y = animal.head[0] * 0.42, -0.12 + random.normal(0, 0.02)
    for side in (-1, 1):
        pen.oval(side * x, y, size * 1.25, size, shade(iris, 1))
        pen.oval(side * x, y, size * (0.28 if animal.slit else 0.6), size * (0.9 if animal.slit else 0.6), (15, 12, 12))


def snout(pen: Pen, animal: Animal, fur: np.ndarray, random: np.random.Generator) -> None:
    width, height = animal.nose
    if animal.muzzle[0]:
        pen.oval(0, 0.30, *animal.muzzle, shade(fur, 1.3))
    if animal.beak:
        pen.polygon(np.array([(-0.12, 0.02), (0.12, 0.02), (0.0, 0.30)]), (225, 170, 50))
    elif width > 0.2:  # with nostrils
        pen.oval(0, 0.22, width, height, shade(fur, 0.8))
        for side in (-1, 1):
            pen.oval(side * 0.09, 0.22, 0.04, 0.07, (40, 25, 25))
    else:
        pen.oval(0, 0.16, width, height, shade(random.uniform(20, 70, 3), 1))
        for side in (-1, 1):
            pen.line((0, 0.16 + height), (side * 0.14, 0.36), (30, 20, 20))
    if animal.whiskers:
        for side in (-1, 1):
            for rise in (-0.10, 0.0, 0.10):
                pen.line((side * 0.14, 0.22 + rise / 2), (side * 0.78, 0.20 + rise * 1.8), (235, 235, 235))


def draw(animal: Animal, random: np.random.Generator) -> Image.Image:
    """One picture of the animal."""
    side = int(random.integers(SMALLEST, LARGEST + 1))
    canvas, fur = scenery(side * FINE, random), random.uniform(60, 215, 3)
    pen = Pen(canvas, random)
    hanging = animal.rounded and animal.ear[-1][1] > 0  # beside the head: before it
    if not hanging:
        ears(pen, animal, fur)
    width, height = animal.head
    pen.oval(0, 0.05, width, height, shade(fur, 1))
    for _ in range(random.integers(0, 4)):  # a pattern on the forehead
        pen.oval(random.uniform(-0.25, 0.25), random.uniform(-0.36, -0.2), 0.06, 0.10, shade(fur, 0.7))
    if hanging:
        ears(pen, animal, fur)
    eyes(pen, animal, random)
    snout(pen, animal, fur, random)
    small = np.asarray(canvas.resize((side, side), Image.Resampling.BOX)).astype(np.float64)
    return Image.fromarray(np.clip(small + random.normal(0, 6, small.shape), 0, 255).astype(np.uint8))


def write(folder: Path, animals: dict[str, Animal], each: int, seed: int = 1) -> None:
    """``each`` images of every animal, in a folder of its own."""
    random = np.random.default_rng(seed)
    for name, animal in animals.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            draw(animal, random).save(folder / name / f"{name}-{number:05}.jpg", quality=92)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw faces of cats and dogs as JPEG images, a folder for each class.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=400, help="images of each class")
    parser.add_argument("--others", action="store_true", help=f"instead of cats and dogs: {', '.join(OTHERS)}")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wanted = OTHERS if args.others else PETS
    write(args.folder, wanted, args.each, args.seed)
    print(f"drew {args.each:,} images each of {', '.join(wanted)} in {args.folder}")
