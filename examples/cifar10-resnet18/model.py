"""For train.py and evaluate.py: the network, and reading CIFAR-10's files."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

RECORD = 1 + 3 * 32 * 32  # bytes: the class, then all red, all green, all blue values
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's training images, from 0 to 1


class Block(nn.Module):
    """Two 3×3 convolutions, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.around = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(inner)) + self.around(images))


class ResNet18(nn.Module):
    """ResNet-18 (He et al., Deep Residual Learning for Image Recognition, 2015, arXiv:1512.03385) for 32×32 pixels: as
    in that paper's section 4.2, a 3×3 convolution with stride 1 takes the place of ImageNet's 7×7 with its pooling.

    It takes images (n, 3, 32, 32) as bytes' values, 0 to 255, and gives logits (n, classes). ``width`` is the number of
    channels of the first stage, 64 in the paper; the others have 2, 4 and 8 times as many.
    """

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(1, 3, 1, 1) * 255, persistent=False)
        stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        blocks, inputs = [], width
        for stage in range(4):
            for number in range(2):
                outputs, stride = width * 2**stage, 2 if stage and not number else 1
                blocks.append(Block(inputs, outputs, stride))
                inputs = outputs
        self.features = nn.Sequential(*stem, *blocks)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features((images.float() - self.mean) / self.deviation)
        return self.classifier(features.mean(dim=(2, 3)))


def read_images(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """The files ``<name>*.bin`` anywhere in ``folder``: images (n, 3, 32, 32) as bytes, labels (n)."""
    files = sorted(folder.rglob(f"{name}*.bin"))
    if not files:
        raise SystemExit(f"no {name}*.bin in {folder}: expected CIFAR-10's binary version")
    for file in files:
        if file.stat().st_size % RECORD or not file.stat().st_size:
            raise SystemExit(f"{file}: {file.stat().st_size} bytes are not a number of records of {RECORD} bytes")
    records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, RECORD) for file in files])
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.from_numpy(records[:, 0].astype(np.int64))


def class_names(folder: Path) -> list[str]:
    """The classes in the order of their numbers, from batches.meta.txt."""
    files = sorted(folder.rglob("batches.meta.txt"))
    if not files:
        raise SystemExit(f"no batches.meta.txt in {folder}: expected CIFAR-10's binary version")
    return files[0].read_text().split()


def load(path: Path) -> ResNet18:
    """A stored model.pt."""
    stored = torch.load(path, weights_only=True, map_location="cpu")
    model = ResNet18(stored["width"], len(stored["classes"]))
    model.load_state_dict(stored["model"])
    return model.eval()
