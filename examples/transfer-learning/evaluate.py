"""Load a stored model and try it on the held-out digits that it knows: python evaluate.py MODEL DATA_DIR

MODEL is a folder with model.pt and model.json somewhere inside (what `weft models download --unpack` brings).
"""

import sys
from pathlib import Path

import torch
from model import load, read_digits


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python evaluate.py MODEL DATA_DIR")
    net, card = load(Path(sys.argv[1]))
    images, labels = read_digits(Path(sys.argv[2]), "t10k", card["digits"])
    with torch.no_grad():
        right = (net(images).argmax(dim=1) == labels).sum().item()
    parent = card["parent"]
    origin = f"from {parent['model'] or 'a pretrained model'}" if parent else "from nothing"
    print(f"digits {card['digits']}, {origin}")
    print(f"accuracy: {right / len(labels):.4f} on {len(labels)} held-out digits")


if __name__ == "__main__":
    main()
