"""Images from a folder of class folders or from WebDataset shards, as `weft data prepare` lays them out, and noise."""

import io
import itertools
import json
import math
import random
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARD = re.compile(r"(?P<split>\w+)-\d{5}-of-\d{5}-(?P<records>\d+)\.tar")
SHUFFLED = 2048
"""The number of encoded images held for shuffling; the shards hold them in random order already."""


class Folder:
    """``<split>/<class>/<name>``; the class is an index in the alphabetical order of the folders."""

    def __init__(self, folder: Path, split: str) -> None:
        self.classes = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
        index = {name: number for number, name in enumerate(self.classes)}
        self.files = [
            (path, index[path.parent.name])
            for path in sorted((folder / split).glob("*/*"))
            if path.suffix.lower() in (".jpg", ".jpeg", ".png")
        ]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, part: int, parts: int, order: random.Random | None) -> Iterator[tuple[bytes, int]]:
        files = list(self.files)
        if order:
            order.shuffle(files)
        for path, label in _share(files, part, parts, whole=order is not None):
            yield path.read_bytes(), label


class Shards:
    """``<split>-<index>-of-<shards>-<records>.tar`` with ``<key>.jpg`` and ``<key>.cls``."""

    def __init__(self, folder: Path, split: str) -> None:
        self.classes = json.loads((folder / "dataset.json").read_text())["classes"]
        matches = [(path, SHARD.fullmatch(path.name)) for path in sorted(folder.glob("*.tar"))]
        self.files = [(path, int(match["records"])) for path, match in matches if match and match["split"] == split]

    def __len__(self) -> int:
        return sum(records for _, records in self.files)

    def read(self, part: int, parts: int, order: random.Random | None) -> Iterator[tuple[bytes, int]]:
        files = [path for path, _ in self.files]
        if order:
            order.shuffle(files)
        if len(files) >= parts:
            records = itertools.chain.from_iterable(map(_records, files[part::parts]))
        else:  # fewer shards than readers: all read all of them, and each takes its share of the images
            records = itertools.islice(itertools.chain.from_iterable(map(_records, files)), part, None, parts)
        return _mixed(records, order) if order else records


def _share(items: list, part: int, parts: int, whole: bool) -> list:
    """Every so many-th one; of less than ``parts``, training takes all: a process without any would wait for ever."""
    return items[part::parts] or (items if whole else [])


def _records(shard: Path) -> Iterator[tuple[bytes, int]]:
    with tarfile.open(shard) as tar:
        image = b""
        for member in tar:
            file = tar.extractfile(member)
            if file and member.name.endswith(".jpg"):
                image = file.read()
            elif file and member.name.endswith(".cls"):
                yield image, int(file.read())


def _mixed(records: Iterable[tuple[bytes, int]], order: random.Random) -> Iterator[tuple[bytes, int]]:
    held: list[tuple[bytes, int]] = []
    for record in records:
        held.append(record)
        if len(held) >= SHUFFLED:
            at = order.randrange(len(held))
            held[at], held[-1] = held[-1], held[at]
            yield held.pop()
    order.shuffle(held)
    yield from held


class Images(IterableDataset):
    """One process's share of a split: pixels (3, size, size) from 0 to 255 and the class; with a ``seed`` to train on,
    in an order and with crops that depend on it alone, and without an end; without, to validate, each image once."""

    def __init__(self, source: Folder | Shards, size: int, rank: int, processes: int, seed: str | None) -> None:
        self.source, self.size, self.rank, self.processes, self.seed = source, size, rank, processes, seed

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = get_worker_info()
        index, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        part, parts = self.rank * workers + index, self.processes * workers
        if self.seed is None:
            for jpeg, label in self.source.read(part, parts, None):
                yield _pixels(_center(_decode(jpeg), self.size)), label
            return
        for turn in itertools.count():
            order = random.Random(f"{self.seed}-{turn}")  # the same in all processes, which share the files out by it
            crops = random.Random(f"{self.seed}-{turn}-{part}")
            for jpeg, label in self.source.read(part, parts, order):
                yield _pixels(_random_crop(_decode(jpeg), self.size, crops)), label


def _decode(jpeg: bytes) -> Image.Image:
    return Image.open(io.BytesIO(jpeg)).convert("RGB")


def _pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _random_crop(image: Image.Image, size: int, random: random.Random) -> Image.Image:
    """A part of 8 to 100 % of the area, 3:4 to 4:3, at random, and every second one mirrored: Szegedy et al., "Going
    Deeper with Convolutions" (2014)."""
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            image = image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + w, top + h))
            break
    else:  # far from square
        image = _center(image, size)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def _center(image: Image.Image, size: int) -> Image.Image:
    """The middle 224/256 of the shorter side, as is usual for validation."""
    side = min(image.size) * 224 / 256
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side))


class Noise:
    """One batch of noise, on the device, again and again: only the training is to be measured."""

    def __init__(self, args, device: torch.device) -> None:
        shape = (args.batch_size, 3, args.image_size, args.image_size)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
        self.batch = images, torch.randint(0, args.classes, (args.batch_size,), device=device)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return itertools.repeat(self.batch)


def find(folder: Path, split: str) -> Folder | Shards | None:
    """The split in the layout that is there; None if it is missing. Exits if the layout is none that it reads."""
    if not folder.is_dir():
        sys.exit(f"no data: there is no folder {folder}")
    if any(folder.glob("*.tfrecord")):
        sys.exit(
            f"{folder} holds TFRecords; this program reads an image folder or WebDataset shards (the other two of "
            "imagenet-resnet50 read TFRecords)"
        )
    if any(SHARD.fullmatch(path.name) for path in folder.glob("*.tar")):
        source: Folder | Shards = Shards(folder, split)
    elif (folder / "train").is_dir():
        source = Folder(folder, split)
    else:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        sys.exit(f"no images to train on in {folder}: it holds {found}, not train/<class>/… or train-*.tar")
    return source if len(source) else None


def loader(source: Folder | Shards, args, gang, epoch: int | None, device: torch.device) -> DataLoader:
    """This process's batches: of an ``epoch`` to train on, in its random order without an end; without, to validate."""
    seed = None if epoch is None else f"{args.seed}-{epoch}"
    return DataLoader(
        Images(source, args.image_size, gang.rank, gang.size, seed),
        args.batch_size,
        num_workers=args.workers,
        # A forked worker inherits locks that threads of Gloo, NCCL or OpenMP hold at that moment, and can then hang.
        multiprocessing_context="forkserver" if args.workers else None,
        pin_memory=device.type == "cuda",
        drop_last=epoch is not None,
    )
