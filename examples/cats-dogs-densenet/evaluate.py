"""Load the stored SavedModel and try it on the held-out images: python evaluate.py MODEL DATA_DIR

MODEL is a folder with saved_model somewhere inside (what `weft download --trainedmodel` brings), DATA_DIR the
TFRecords. Keras is not needed, nor the code that trained: a SavedModel is whole.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from records import class_names, read


def find(path: Path) -> Path:
    found = sorted(path.rglob("saved_model.pb"))
    if not found:
        sys.exit(f"no SavedModel in {path}")
    return found[0].parent


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python evaluate.py MODEL DATA_DIR")
    model, data = tf.saved_model.load(str(find(Path(sys.argv[1])))), Path(sys.argv[2])
    [wanted] = model.signatures["serving_default"].structured_input_signature[1].values()
    right, shown = [], []
    for images, labels in read(data, "validation", wanted.shape[1]).batch(32):
        right.append(tf.cast(tf.argmax(model.serve(images), axis=1) == labels, tf.float32))
        shown.append(labels)
    right, shown = tf.concat(right, axis=0), tf.concat(shown, axis=0)
    for number, name in enumerate(class_names(data)):
        print(f"{name:<12}{tf.reduce_mean(right[shown == number]):.4f}")
    print(f"accuracy: {tf.reduce_mean(right):.4f} on {len(right):,} held-out images")


if __name__ == "__main__":
    main()
