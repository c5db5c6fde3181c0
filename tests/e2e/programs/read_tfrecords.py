"""Prints, as JSON, what TensorFlow finds in a folder of TFRecords: of each file its classes and the images' sizes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "class": tf.io.FixedLenFeature([], tf.int64),
    "name": tf.io.FixedLenFeature([], tf.string),
}
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.tfrecord")):
    rows = []
    for record in tf.data.TFRecordDataset(str(path)):
        example = tf.io.parse_single_example(record, FEATURES)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        rows.append([int(example["class"]), example["name"].numpy().decode(), list(image.shape)])
    found[path.name] = rows
print(json.dumps(found))
