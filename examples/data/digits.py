"""Write real handwritten digits as MNIST's four files, with nothing to download.

    python examples/data/digits.py FOLDER

scikit-learn carries 1,797 digits (`load_digits`, the test set of UCI's optdigits, 8×8 pixels). They are enlarged to
20×20 by bilinear interpolation and centred in 28×28, which is how MNIST's own digits lie in theirs, so whatever reads
MNIST reads these: 1,437 to train on and 360 held out, every class in the same share, always the same ones.

Needs scikit-learn: `pip install "weft[demo]"`.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np


def enlarge(images: np.ndarray) -> np.ndarray:
    """(n, 8, 8) with values 0 to 16 → (n, 28, 28) with values 0 to 255, as bytes."""
    # One axis as a matrix product: row i holds the weights of the 8 old pixels in new pixel i.
    weights = np.stack([np.interp(np.linspace(0, 7, 20), np.arange(8), pixel) for pixel in np.eye(8)], axis=1)
    larger = weights @ (images * 255 / 16) @ weights.T
    return np.pad(np.rint(larger).astype(np.uint8), ((0, 0), (4, 4), (4, 4)))


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the held-out digits: of each class, every fifth is held out."""
    held_out = np.sort(np.argsort(labels, kind="stable")[::5])
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def idx(values: np.ndarray) -> bytes:
    """MNIST's IDX format, compressed: a magic number that says 'bytes' and how many axes, their sizes, the bytes."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 0x08, values.ndim, *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0)  # no date: the same bytes every time


def write(folder: Path) -> tuple[int, int]:
    """Write the four files; how many digits there are to train on, and held out."""
    from sklearn.datasets import load_digits  # takes seconds, and fashion.py imports this module

    digits = load_digits()
    images, labels = enlarge(digits.images), digits.target
    training, held_out = split(labels)
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in (("train", training), ("t10k", held_out)):
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(images[chosen]))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(labels[chosen]))
    return len(training), len(held_out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python digits.py FOLDER")
    trained, tested = write(Path(sys.argv[1]))
    print(f"wrote {trained:,} digits to train on and {tested:,} held out to {sys.argv[1]}")
