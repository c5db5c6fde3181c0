"""Load the trained model and try it on the held-out images: python evaluate.py MODEL DATA_DIR

MODEL is model.pt, or a folder with it somewhere inside (what `weft download --trainedmodel` brings).
"""

import sys
from pathlib import Path

import torch
from model import class_names, load, read_images


def find(path: Path) -> Path:
    found = [path] if path.is_file() else sorted(path.rglob("model.pt"))
    if not found:
        sys.exit(f"no model.pt in {path}")
    return found[0]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python evaluate.py MODEL DATA_DIR")
    model, data = load(find(Path(sys.argv[1]))), Path(sys.argv[2])
    images, labels = read_images(data, "test_batch")
    with torch.no_grad():
        right = torch.cat([model(part).argmax(dim=1) for part in images.split(256)]) == labels
    for number, name in enumerate(class_names(data)):
        print(f"{name:<12}{right[labels == number].float().mean():.4f}")
    print(f"accuracy: {right.float().mean():.4f} on {len(labels):,} held-out images")


if __name__ == "__main__":
    main()
