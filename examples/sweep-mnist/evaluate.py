"""Load the trained model and try it on the held-out digits: python evaluate.py MODEL DATA_DIR

MODEL is model.pt, or a folder with it somewhere inside (what `weft download --trainedmodel` brings).
"""

import sys
from pathlib import Path

import torch
from model import Net, read_digits


def find(path: Path) -> Path:
    found = [path] if path.is_file() else sorted(path.rglob("model.pt"))
    if not found:
        sys.exit(f"no model.pt in {path}")
    return found[0]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python evaluate.py MODEL DATA_DIR")
    model = Net()
    model.load_state_dict(torch.load(find(Path(sys.argv[1])), weights_only=True))
    model.eval()
    images, labels = read_digits(Path(sys.argv[2]), "t10k")
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    print(f"accuracy: {right / len(labels):.4f} on {len(labels)} held-out digits")


if __name__ == "__main__":
    main()
