"""Images from TFRecords or from a folder of class folders, as `weft data prepare` lays them out, and noise."""

import json
import re
import sys
from pathlib import Path

import tensorflow as tf

SHARD = re.compile(r"(?P<split>\w+)-\d{5}-of-\d{5}-(?P<records>\d+)\.tfrecord")
SHUFFLED = 2048
"""The number of encoded images held for shuffling; the shards hold them in random order already."""
AUTOTUNE = tf.data.AUTOTUNE


class Records:
    """``<split>-<index>-of-<shards>-<records>.tfrecord`` of Examples with ``image`` (JPEG) and ``class``."""

    def __init__(self, folder: Path, split: str) -> None:
        self.classes = json.loads((folder / "dataset.json").read_text())["classes"]
        matches = [(path, SHARD.fullmatch(path.name)) for path in sorted(folder.glob("*.tfrecord"))]
        self.files = [
            (str(path), int(match["records"])) for path, match in matches if match and match["split"] == split
        ]

    def __len__(self) -> int:
        return sum(records for _, records in self.files)

    def share(self, part: int, parts: int) -> int:
        """How many images one of ``parts`` processes validates on."""
        if len(self.files) >= parts:
            return sum(records for _, records in self.files[part::parts])
        return len(range(part, len(self), parts))

    def read(self, part: int, parts: int, seed: tf.Tensor | None) -> tf.data.Dataset:
        paths = [path for path, _ in self.files]
        if seed is not None:  # in the same order everywhere: they are shared out by it
            paths = tf.random.experimental.stateless_shuffle(paths, seed)
        files = tf.data.Dataset.from_tensor_slices(paths)
        by_file = len(self.files) >= parts
        if by_file:
            files = files.shard(parts, part)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=AUTOTUNE)
        if not by_file:  # fewer shards than processes: all read all of them, and each takes its share of the images
            records = records.shard(parts, part)
        if seed is not None:
            records = records.shuffle(SHUFFLED, tf.reduce_sum(seed))
        return records.map(_parse, num_parallel_calls=AUTOTUNE)


class Folder:
    """``<split>/<class>/<name>``; the class is an index in the alphabetical order of the folders."""

    def __init__(self, folder: Path, split: str) -> None:
        self.classes = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
        index = {name: number for number, name in enumerate(self.classes)}
        self.files = [
            (str(path), index[path.parent.name])
            for path in sorted((folder / split).glob("*/*"))
            if path.suffix.lower() in (".jpg", ".jpeg")
        ]

    def __len__(self) -> int:
        return len(self.files)

    def share(self, part: int, parts: int) -> int:
        return len(range(part, len(self), parts))

    def read(self, part: int, parts: int, seed: tf.Tensor | None) -> tf.data.Dataset:
        paths, labels = map(tf.constant, zip(*self.files, strict=True))
        if seed is not None:
            order = tf.random.experimental.stateless_shuffle(tf.range(len(self.files)), seed)
            paths, labels = tf.gather(paths, order), tf.gather(labels, order)
        files = tf.data.Dataset.from_tensor_slices((paths, labels))
        if seed is None or len(self.files) >= parts:  # a process without any to train on would wait for ever
            files = files.shard(parts, part)
        return files.map(lambda path, label: (tf.io.read_file(path), label), num_parallel_calls=AUTOTUNE)


def _parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "class": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return example["image"], tf.cast(example["class"], tf.int32)


def find(folder: Path, split: str) -> Records | Folder | None:
    """The split in the layout that is there; None if it is missing. Exits if the layout is none that it reads."""
    if not folder.is_dir():
        sys.exit(f"no data: there is no folder {folder}")
    if any(SHARD.fullmatch(path.name) for path in folder.glob("*.tfrecord")):
        source: Records | Folder = Records(folder, split)
    elif (folder / "train").is_dir():
        source = Folder(folder, split)
    elif any(folder.glob("*.tar")):
        sys.exit(
            f"{folder} holds WebDataset shards; this program reads TFRecords or an image folder (imagenet-resnet50 "
            "with PyTorch reads WebDataset)"
        )
    else:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        sys.exit(f"no images to train on in {folder}: it holds {found}, not train-*.tfrecord or train/<class>/…")
    return source if len(source) else None


def batches(source: Records | Folder, args, rank: int, processes: int, epoch: tf.Tensor | None) -> tf.data.Dataset:
    """This process's batches of pixels (n, size, size, 3) from 0 to 255 and classes: of an ``epoch`` to train on, in an
    order and with crops that belong to it, and without an end; without, to validate, each image once."""
    workers, size = args.workers or AUTOTUNE, args.image_size
    if epoch is None:
        images = source.read(rank, processes, None).map(
            lambda jpeg, label: (_center(jpeg, size), label), num_parallel_calls=workers
        )
        return images.batch(args.batch_size).prefetch(AUTOTUNE)
    seed = tf.stack([tf.constant(args.seed, tf.int64), tf.cast(epoch, tf.int64)])

    def crop(number, image):
        jpeg, label = image
        return _random_crop(jpeg, size, tf.random.fold_in(seed, number * processes + rank)), label

    images = source.read(rank, processes, seed).repeat().enumerate().map(crop, num_parallel_calls=workers)
    return images.batch(args.batch_size, drop_remainder=True).prefetch(AUTOTUNE)


def noise(args) -> tf.data.Dataset:
    """One batch of noise, again and again: only the training is to be measured."""
    shape = (args.batch_size, args.image_size, args.image_size, 3)
    images = tf.random.uniform(shape, 0, 255)
    labels = tf.random.uniform((args.batch_size,), 0, args.classes, tf.int32)
    return tf.data.Dataset.from_tensors((images, labels)).cache().repeat()


def _random_crop(jpeg, size: int, seed):
    """A part of 8 to 100 % of the area, 3:4 to 4:3, at random, and every second one mirrored: Szegedy et al., "Going
    Deeper with Convolutions" (2014). Only that part of the JPEG is decoded."""
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        tf.zeros((1, 0, 4)),
        seed,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], extent[:2]], 0)
    image = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
    return tf.image.stateless_random_flip_left_right(_resized(image, size), seed)


def _center(jpeg, size: int):
    """The middle 224/256 of the shorter side, as is usual for validation."""
    height, width = tf.unstack(tf.io.extract_jpeg_shape(jpeg)[:2])
    side = tf.maximum(tf.cast(tf.cast(tf.minimum(height, width), tf.float32) * (224 / 256), tf.int32), 1)
    window = tf.stack([(height - side) // 2, (width - side) // 2, side, side])
    return _resized(tf.io.decode_and_crop_jpeg(jpeg, window, channels=3), size)


def _resized(image, size: int):
    image = tf.image.resize(image, (size, size), antialias=True)
    return tf.ensure_shape(image, (size, size, 3))
