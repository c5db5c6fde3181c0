"""The same small network on the same images, in single precision and in both kinds of mixed precision."""

import json

import torch
from torch import nn
from torch.nn import functional

STEPS = 60
device = "cuda" if torch.cuda.is_available() else "cpu"


def train(precision):
    """The losses, and the type that a convolution's output has."""
    torch.manual_seed(0)
    images, labels = torch.randn(64, 3, 16, 16), torch.arange(64) % 10
    images, labels = images.to(device), labels.to(device)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 14 * 14, 10)
    ).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=precision is torch.float16)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast(device, precision or torch.bfloat16, enabled=precision is not None):
            made = net[0](images).dtype
            logits = net(images)
        loss = functional.cross_entropy(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, str(made).removeprefix("torch.")


for name, precision in (("float32", None), ("bfloat16", torch.bfloat16), ("float16", torch.float16)):
    losses, made = train(precision)
    print("precision", json.dumps({"asked": name, "made": made, "first": losses[0], "last": losses[-1]}), flush=True)
