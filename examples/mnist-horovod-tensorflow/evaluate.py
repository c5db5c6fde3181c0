"""Load the trained model and try it on the held-out digits: python evaluate.py MODEL DATA_DIR

MODEL is model.keras, or a folder with it somewhere inside (what `weft download --trainedmodel` brings).
"""

import os
import sys
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the same sums in the same order, always; read when TensorFlow is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from model import read_digits


def find(path: Path) -> Path:
    found = [path] if path.is_file() else sorted(path.rglob("model.keras"))
    if not found:
        sys.exit(f"no model.keras in {path}")
    return found[0]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python evaluate.py MODEL DATA_DIR")
    model = keras.saving.load_model(find(Path(sys.argv[1])))
    images, labels = read_digits(Path(sys.argv[2]), "t10k")
    right = (model.predict(images, verbose=0).argmax(axis=1) == labels).sum()
    print(f"accuracy: {right / len(labels):.4f} on {len(labels)} held-out digits")


if __name__ == "__main__":
    main()
