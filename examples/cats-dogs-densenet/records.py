"""Reading TFRecords made by `weft data prepare`, for all programs here."""

import json
from pathlib import Path

import tensorflow as tf


def find(folder: Path) -> Path:
    """Where in ``folder`` the data set is."""
    found = sorted(folder.rglob("dataset.json"))
    if len(found) != 1 or json.loads(found[0].read_text())["layout"] != "tfrecords":
        raise SystemExit(f"{folder}: expected one data set in the layout tfrecords, made by `weft data prepare`")
    return found[0].parent


def class_names(folder: Path) -> list[str]:
    return json.loads((find(folder) / "dataset.json").read_text())["classes"]


def shards(folder: Path, split: str) -> tuple[list[str], int]:
    """A split's files, and how many records they hold, which stands at the end of their names."""
    files = sorted(find(folder).glob(f"{split}-*.tfrecord"))
    count = sum(int(file.stem.rpartition("-")[2]) for file in files)
    if not count:
        raise SystemExit(f"{folder}: the data set has no records in the split {split}")
    return [str(file) for file in files], count


def parse(record: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """An image (size, size, 3), values 0 to 255, and its class."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "class": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), (size, size), antialias=True)
    return image, example["class"]


def read(folder: Path, split: str, size: int) -> tf.data.Dataset:
    """A split's images and classes, always in the same order."""
    files, count = shards(folder, split)
    records = tf.data.TFRecordDataset(files).apply(tf.data.experimental.assert_cardinality(count))
    return records.map(lambda record: parse(record, size), num_parallel_calls=tf.data.AUTOTUNE)


def read_weighted(folder: Path, split: str, size: int, batch: int) -> tf.data.Dataset:
    """A split's images, classes and weights, in whole batches: the last is filled up with images of weight 0, since a
    strategy would give nothing of a smaller one to some of its replicas."""
    images = read(folder, split, size)
    missing = -len(images) % batch
    counted = images.map(lambda image, label: (image, label, 1.0))
    filling = images.repeat().take(missing).map(lambda image, label: (image, label, 0.0))
    return counted.concatenate(filling).batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def steps_per_epoch(folder: Path, split: str, batch: int) -> int:
    """How many whole batches a split has."""
    _, count = shards(folder, split)
    if count < batch:
        raise SystemExit(f"the split {split} has {count} records, fewer than the {batch} of one batch")
    return count // batch


def read_shuffled(
    folder: Path, split: str, size: int, batch: int, epochs: range, seed: int, mirror: bool
) -> tf.data.Dataset:
    """A split's images and classes in whole batches, epoch after epoch; half of the images mirrored if wanted. The
    order and the mirrored images belong to the epoch: a resume has the same."""
    files, count = shards(folder, split)

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        names = tf.random.experimental.stateless_shuffle(files, tf.stack([seed, tf.cast(number, tf.int32)]))
        records = tf.data.Dataset.from_tensor_slices(names).interleave(
            tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE
        )
        shuffled = records.shuffle(min(count, 10_000), seed + number, reshuffle_each_iteration=False)
        numbered = shuffled.enumerate(number * count)
        return numbered.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).batch(batch, drop_remainder=True)

    def prepare(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = parse(record, size)
        if mirror:
            image = tf.image.stateless_random_flip_left_right(image, tf.stack([tf.cast(seed, tf.int64), number]))
        return image, label

    return tf.data.Dataset.range(epochs.start, epochs.stop).flat_map(epoch).prefetch(tf.data.AUTOTUNE)
