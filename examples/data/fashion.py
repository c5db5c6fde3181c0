"""Draw simple pieces of clothing as Fashion-MNIST's four files, with nothing to download.

    python examples/data/fashion.py FOLDER

These are drawings, not photographs: ten silhouettes, one for each of Fashion-MNIST's classes, each time in another
size, place, shape, brightness and pattern, and some noise on top. 2,000 to train on and 500 held out, every class in
the same share, always the same ones. Fashion-MNIST's own files have the same names and the same format, so whatever
reads these reads those.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from digits import idx

SIZE, FINE = 28, 2  # pixels, and samples a pixel along each axis
EACH = {"train": 200, "t10k": 50}  # of each class

# Outlines in a square from 0 to 1, x to the right, y down. A piece is what lies in an odd number of them.
TORSO = [(0.72, 0.40), (0.72, 0.90), (0.28, 0.90), (0.28, 0.40)]
SHORT = [
    (0.30, 0.14), (0.43, 0.19), (0.57, 0.19), (0.70, 0.14), (0.94, 0.30), (0.85, 0.44),
    *TORSO, (0.15, 0.44), (0.06, 0.30),
]  # fmt: skip
LONG = [
    (0.31, 0.13), (0.44, 0.18), (0.56, 0.18), (0.69, 0.13), (0.83, 0.24), (0.97, 0.82), (0.83, 0.86),
    *TORSO, (0.17, 0.86), (0.03, 0.82), (0.17, 0.24),
]  # fmt: skip
PIECES = {
    "T-shirt": [SHORT],
    "trouser": [[(0.31, 0.07), (0.69, 0.07), (0.75, 0.95), (0.57, 0.95), (0.50, 0.34), (0.43, 0.95), (0.25, 0.95)]],
    "pullover": [LONG],
    "dress": [[(0.40, 0.04), (0.60, 0.04), (0.57, 0.36), (0.78, 0.96), (0.22, 0.96), (0.43, 0.36)]],
    "coat": [LONG, [(0.475, 0.10), (0.525, 0.10), (0.525, 0.95), (0.475, 0.95)]],
    "sandal": [
        [(0.04, 0.74), (0.50, 0.70), (0.96, 0.76), (0.96, 0.83), (0.04, 0.83)],
        [(0.12, 0.52), (0.20, 0.50), (0.46, 0.71), (0.36, 0.72)],
        [(0.60, 0.50), (0.68, 0.50), (0.86, 0.74), (0.76, 0.75)],
    ],
    "shirt": [
        SHORT,
        [(0.49, 0.19), (0.51, 0.19), (0.51, 0.90), (0.49, 0.90)],
        [(0.56, 0.34), (0.67, 0.34), (0.67, 0.46), (0.56, 0.46)],
    ],
    "sneaker": [[(0.05, 0.48), (0.20, 0.46), (0.36, 0.57), (0.60, 0.61), (0.92, 0.71), (0.96, 0.84), (0.04, 0.84)]],
    "bag": [
        [(0.12, 0.40), (0.88, 0.40), (0.92, 0.88), (0.08, 0.88)],
        [(0.30, 0.40), (0.34, 0.14), (0.66, 0.14), (0.70, 0.40),
         (0.63, 0.40), (0.60, 0.21), (0.40, 0.21), (0.37, 0.40)],
    ],
    "ankle boot": [[(0.10, 0.16), (0.42, 0.16), (0.43, 0.50), (0.70, 0.58), (0.94, 0.70), (0.96, 0.87), (0.07, 0.87)]],
}  # fmt: skip


def inside(outline: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which points of a grid lie in the outline (corners, 2): a ray to the right crosses an odd number of edges."""
    y = rows[:, None]
    (x1, y1), (x2, y2) = outline.T, np.roll(outline, -1, axis=0).T
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (x2 - x1) * (y - y1) / (y2 - y1) + x1
    crossings[(y1 > y) == (y2 > y)] = -np.inf
    return (columns[:, None] < crossings[:, None]).sum(axis=2) % 2 == 1


def draw(piece: list[list[tuple[float, float]]], random: np.random.Generator) -> np.ndarray:
    """One (28, 28) picture, values 0 to 255."""
    steps = (np.arange(SIZE * FINE) + 0.5) / (SIZE * FINE)
    points = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    scale, shift = random.uniform(0.82, 1.0, 2), random.normal(0, 0.025, 2)
    points = (points - 0.5 - shift) / scale + 0.5
    columns, rows = points[: len(steps), 0], points[:: len(steps), 1]
    covered = np.zeros((len(rows), len(columns)), bool)
    for outline in piece:
        corners = np.array(outline)
        covered ^= inside(corners + random.normal(0, 0.012, corners.shape), columns, rows)
    stripes = random.uniform(0, 0.25) * np.sin(points @ random.normal(0, 25, 2))
    shade = random.uniform(0.45, 0.95) * (1 + stripes)
    picture = (covered.ravel() * shade).reshape(SIZE, FINE, SIZE, FINE).mean(axis=(1, 3))
    noise = random.normal(0, 0.03, picture.shape) * (picture > 0)
    return np.clip(np.rint((picture + noise) * 255), 0, 255).astype(np.uint8)


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for name, each in EACH.items():
        labels = random.permutation(np.repeat(np.arange(len(PIECES)), each))
        pieces = list(PIECES.values())
        images = np.stack([draw(pieces[label], random) for label in labels])
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(labels))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python fashion.py FOLDER")
    write(Path(sys.argv[1]))
    many = {name: each * len(PIECES) for name, each in EACH.items()}
    print(f"drew {many['train']:,} pieces of clothing to train on and {many['t10k']:,} held out to {sys.argv[1]}")
