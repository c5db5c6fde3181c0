"""For train.py and evaluate.py: the network, and reading the digits."""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions and two dense layers: 98 % of handwritten digits, and seconds on one core."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # 28×28 → 14×14
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # → 7×7
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Dropout(0.25), nn.Linear(64, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))


def read_digits(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """MNIST's files `<name>-images-…` and `<name>-labels-…`: images (n, 1, 28, 28) from 0 to 1, labels (n)."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))
