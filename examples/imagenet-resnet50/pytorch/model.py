"""ResNet v1.5: He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride of a bottleneck in its
3×3 convolution rather than in the first 1×1, as everybody has trained it since (a little slower, half a point better).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Basic(nn.Module):
    """Two 3×3 convolutions; of ResNet-18 and -34."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inputs, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv2, self.last_norm = _conv(channels, channels, 3), nn.BatchNorm2d(channels)
        self.shortcut = _shortcut(inputs, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.last_norm(self.conv2(y)) + self.shortcut(x), inplace=True)


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 with four times the channels at its end; of ResNet-50 and deeper."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * self.expansion
        self.conv1, self.norm1 = _conv(inputs, channels, 1), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = _conv(channels, channels, 3, stride), nn.BatchNorm2d(channels)  # v1.5: stride here
        self.conv3, self.last_norm = _conv(channels, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = functional.relu(self.norm2(self.conv2(y)), inplace=True)
        return functional.relu(self.last_norm(self.conv3(y)) + self.shortcut(x), inplace=True)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


BLOCKS = {
    18: (Basic, (2, 2, 2, 2)),
    34: (Basic, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


class ResNet(nn.Module):
    """Images (n, 3, size, size), normalized by :func:`normalize` → logits (n, classes)."""

    def __init__(self, depth: int = 50, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        block, counts = BLOCKS[depth]
        self.stem = nn.Sequential(
            _conv(3, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(counts):
            for index in range(count):
                channels = width << stage
                blocks.append(block(inputs, channels, 2 if stage and not index else 1))
                inputs = channels * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, classes)
        self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Basic | Bottleneck):
                nn.init.zeros_(module.last_norm.weight)  # each block begins as its shortcut alone (Goyal et al., 5.1)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(self.stem(images)).mean(dim=(2, 3))
        return self.classifier(features)


def normalize(images: Tensor) -> Tensor:
    """Pixels from 0 to 255 (n, 3, h, w) → ImageNet's mean and standard deviation taken out."""
    mean = torch.tensor([123.675, 116.28, 103.53], device=images.device).view(1, 3, 1, 1)
    deviation = torch.tensor([58.395, 57.12, 57.375], device=images.device).view(1, 3, 1, 1)
    return (images.float() - mean) / deviation
