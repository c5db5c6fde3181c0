"""For all programs here: the network, reading the digits, and the file beside a stored model."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Features, which recognise strokes, and a head for the classes that it was made for."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # 28×28 → 14×14
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # → 7×7
            nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(32 * 7 * 7, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def read_digits(folder: Path, name: str, digits: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Those of MNIST's files that show one of ``digits``: images (n, 1, 28, 28) from 0 to 1, and for each the place of
    its digit among ``digits``."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    classes = np.array(list(digits))
    chosen = np.isin(labels, classes)
    places = (labels[chosen][:, None] == classes).argmax(axis=1)
    return torch.from_numpy(pixels[chosen].astype(np.float32) / 255), torch.from_numpy(places.astype(np.int64))


def save(net: Net, card: dict, folder: Path) -> None:
    torch.save(net.state_dict(), folder / "model.pt")
    (folder / "model.json").write_text(json.dumps(card, indent=2) + "\n")


def load(folder: Path) -> tuple[Net, dict]:
    """A stored model and its model.json, wherever in ``folder`` they are."""
    found = sorted(folder.rglob("model.json"))
    if len(found) != 1:
        raise SystemExit(f"expected one model.json in {folder}, found {len(found)}")
    card = json.loads(found[0].read_text())
    net = Net(len(card["digits"]))
    net.load_state_dict(torch.load(found[0].with_name("model.pt"), weights_only=True, map_location="cpu"))
    return net, card
