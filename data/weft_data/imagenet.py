"""The source ``imagenet``: the published archives of ILSVRC2012, read in place.

- ``ILSVRC2012_img_train.tar`` holds one tar archive per synset, such as ``n01440764.tar``, with the images of a class.
- ``ILSVRC2012_img_val.tar`` holds the files ``ILSVRC2012_val_00000001.JPEG`` and so on, without folders. Line n of
  ``ILSVRC2012_validation_ground_truth.txt`` is the class of image n, as an ``ILSVRC2012_ID``: the number of a synset,
  from 1, *in the devkit's own order* (``meta.mat``), which is not the alphabetical order.
- ``ILSVRC2012_devkit_t12.tar.gz`` holds ``data/meta.mat`` and ``data/ILSVRC2012_validation_ground_truth.txt``.

So the class of a validation image takes two steps: ``ILSVRC2012_ID`` → wnid → index in the alphabetical order of wnids.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_data.archives import members
from weft_data.errors import DatasetError
from weft_data.source import TRAIN, VALIDATION, Item, Names, Source, class_names

TRAIN_ARCHIVE = "ILSVRC2012_img_train.tar"
VALIDATION_ARCHIVE = "ILSVRC2012_img_val.tar"
DEVKITS = ("ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_devkit_t12.tar", "ILSVRC2012_devkit_t12", "meta.mat")
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
SYNSETS = ("synsets.txt", "map_clsloc.txt")
_META = "meta.mat"
_WNID = re.compile(r"n\d{8}")
_VALIDATION_NAME = re.compile(r"(?:.*/)?ILSVRC2012_val_(\d{8})\.JPEG", re.IGNORECASE)
_LARGEST = 64 << 20  # bytes, of a file in the devkit; the real files have less than 1 MiB


@dataclass(frozen=True)
class Archives:
    """The paths of the files; None: the file is not given and not there."""

    train: Path | None = None
    validation: Path | None = None
    devkit: Path | None = None
    ground_truth: Path | None = None
    synsets: Path | None = None

    @classmethod
    def find(cls, folder: Path, **given: Path | None) -> Archives:
        """The files under their official names in ``folder``; a path in ``given`` wins.

        Raises:
            DatasetError: the folder, a given file, or both archives of images are missing.
        """
        if not folder.is_dir():
            raise DatasetError(f"there is no folder {folder}")
        names = {
            "train": (TRAIN_ARCHIVE,),
            "validation": (VALIDATION_ARCHIVE,),
            "devkit": DEVKITS,
            "ground_truth": (GROUND_TRUTH,),
            "synsets": SYNSETS,
        }
        found = {}
        for what, candidates in names.items():
            path = given.get(what)
            if path is not None and not path.exists():
                raise DatasetError(f"there is no file {path}")
            found[what] = path or next((folder / name for name in candidates if (folder / name).exists()), None)
        if found["train"] is None and found["validation"] is None:
            raise DatasetError(f"{folder} holds neither {TRAIN_ARCHIVE} nor {VALIDATION_ARCHIVE}")
        return cls(**found)


@dataclass(frozen=True)
class Synsets:
    """The devkit's list: wnids by ILSVRC2012_ID, and titles by wnid."""

    by_id: dict[int, str]
    titles: dict[str, str]


def imagenet(archives: Archives, progress: Callable[[str], None] = lambda text: None) -> Source:
    """List the images of the archives.

    Args:
        progress: called with a text about the file that is being read; the real archives take a while.

    Raises:
        DatasetError: an archive is not as described above or is refused, or the files that give the classes of the
            validation images are missing or don't fit.
    """
    synsets = _synsets(archives)
    splits: dict[str, list[Item]] = {}
    notes = []
    train = _train(archives.train, progress) if archives.train else {}
    wnids = set(synsets.by_id.values()) if synsets else set(train)
    if unknown := sorted(set(train) - wnids):
        raise DatasetError(f"{archives.train} holds synsets that are not in the devkit: {', '.join(unknown[:5])}")
    if archives.train and (absent := sorted(wnids - set(train))):
        notes.append(f"{len(absent):,} of {len(wnids):,} synsets have no training images: {', '.join(absent[:5])} …")
    truth = _truth(archives, synsets) if archives.validation else []
    if not synsets:
        wnids |= set(truth)
    classes = class_names(wnids)
    index = {wnid: number for number, wnid in enumerate(classes)}
    if archives.train:
        names = Names()
        splits[TRAIN] = [
            Item(str(archives.train), offset, size, index[wnid], names(TRAIN, index[wnid], name.rpartition("/")[2]))
            for wnid in sorted(train)
            for name, offset, size in train[wnid]
        ]
    if archives.validation:
        progress(f"reading {archives.validation.name}")
        splits[VALIDATION] = _validation(archives.validation, truth, index)
    else:
        notes.append(f"no {VALIDATION_ARCHIVE}: there will be no validation split")
    if not archives.train:
        notes.append(f"no {TRAIN_ARCHIVE}: there will be no training split")
    titles = {wnid: synsets.titles[wnid] for wnid in classes if wnid in synsets.titles} if synsets else {}
    return Source("imagenet", classes, splits, titles=titles, notes=notes)


def _train(path: Path, progress: Callable[[str], None]) -> dict[str, list[tuple[str, int, int]]]:
    found: dict[str, list[tuple[str, int, int]]] = {}
    for number, inner in enumerate(members(path), 1):
        stem, _, extension = inner.name.rpartition("/")[2].rpartition(".")
        if extension != "tar" or not _WNID.fullmatch(stem):
            raise DatasetError(f"{path} holds {inner.name!r}; expected one archive per synset, such as n01440764.tar")
        if stem in found:
            raise DatasetError(f"{path} holds {inner.name!r} twice")
        progress(f"reading {path.name}: synset {number:,}, {stem}")
        found[stem] = sorted((member.name, member.offset, member.size) for member in members(path, inner))
    if not found:
        raise DatasetError(f"{path} is empty")
    return found


def _validation(path: Path, truth: Sequence[str], index: dict[str, int]) -> list[Item]:
    images: dict[int, Any] = {}
    for member in members(path):
        match = _VALIDATION_NAME.fullmatch(member.name)
        if not match or int(match[1]) in images:
            raise DatasetError(
                f"{path} holds {member.name!r}; expected ILSVRC2012_val_00000001.JPEG and so on, each once"
            )
        images[int(match[1])] = member
    if sorted(images) != list(range(1, len(truth) + 1)):
        raise DatasetError(
            f"{path} holds {len(images):,} images, but the ground truth is for {len(truth):,}: "
            "it must have one line per image, in the order of the images' numbers"
        )
    return [
        Item(str(path), images[n].offset, images[n].size, index[wnid], f"ILSVRC2012_val_{n:08}")
        for n, wnid in enumerate(truth, 1)
    ]


def _truth(archives: Archives, synsets: Synsets | None) -> list[str]:
    """The wnids of the validation images, in the order of the images' numbers."""
    text = None
    if archives.ground_truth:
        text, where = _text(archives.ground_truth), str(archives.ground_truth)
    elif archives.devkit and (content := _from_devkit(archives.devkit, GROUND_TRUTH)) is not None:
        text, where = content.decode("utf-8", "replace"), f"{archives.devkit}: {GROUND_TRUTH}"
    if text is None:
        raise DatasetError(
            f"the validation images need {GROUND_TRUTH}: put it beside the archives or into the devkit, "
            "or give --ground-truth"
        )
    wnids = []
    for number, line in enumerate(text.rstrip().splitlines(), 1):
        word = line.strip()
        if _WNID.fullmatch(word):
            wnids.append(word)
        elif not word.isdecimal():
            raise DatasetError(f"{where}, line {number}: {line!r}; expected an ILSVRC2012_ID, such as 490, or a wnid")
        elif synsets is None:
            raise DatasetError(
                "the ground truth has numbers in the devkit's order: give ILSVRC2012_devkit_t12.tar.gz (--devkit), "
                "or a list of the synsets in that order (--synsets)"
            )
        elif int(word) not in synsets.by_id:
            raise DatasetError(
                f"{where}, line {number}: there is no synset {word}; the highest is {max(synsets.by_id)}"
            )
        else:
            wnids.append(synsets.by_id[int(word)])
    if synsets and (unknown := sorted(set(wnids) - set(synsets.by_id.values()))):
        raise DatasetError(f"{where} has wnids that are not among the synsets: {', '.join(unknown[:5])}")
    return wnids


def _synsets(archives: Archives) -> Synsets | None:
    if archives.synsets:
        return _synset_text(archives.synsets)
    if archives.devkit is None:
        return None
    content = _from_devkit(archives.devkit, _META)
    if content is None:
        raise DatasetError(f"{archives.devkit} holds no data/{_META}")
    return _synset_mat(content, str(archives.devkit))


def _synset_mat(content: bytes, where: str) -> Synsets:
    """Read the struct array ``synsets`` of the devkit's readme. The classes are the synsets without children."""
    from scipy.io import loadmat  # slow to import, and only needed here

    try:
        rows = loadmat(io.BytesIO(content), squeeze_me=True)["synsets"]
        by_id, titles = {}, {}
        for row in rows.reshape(-1):
            if int(row["num_children"]) == 0:
                wnid = str(row["WNID"]).strip()
                by_id[int(row["ILSVRC2012_ID"])] = wnid
                titles[wnid] = str(row["words"]).strip()
    except Exception as error:  # damaged files make scipy raise errors of many kinds
        raise DatasetError(f"{where}: {_META} can't be read: {error}") from error
    return Synsets(_checked(by_id, where), titles)


def _synset_text(path: Path) -> Synsets:
    """Read lines of ``wnid`` in the devkit's order, or lines of ``wnid ID title`` (map_clsloc.txt) in any order."""
    by_id: dict[int, str] = {}
    titles = {}
    numbered = False
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.split(maxsplit=2)
        if not words:
            continue
        if not _WNID.fullmatch(words[0]):
            raise DatasetError(f"{path}, line {number}: {line!r}; expected a wnid, such as n02119789")
        has_id = len(words) > 1 and words[1].isdecimal()
        if by_id and has_id != numbered:
            raise DatasetError(f"{path}, line {number}: either all lines must have an ILSVRC2012_ID, or none")
        numbered = has_id
        at = int(words[1]) if has_id else len(by_id) + 1
        if at in by_id:
            raise DatasetError(f"{path}, line {number}: the ILSVRC2012_ID {at} occurs twice")
        by_id[at] = words[0]
        if title := " ".join(words[2:] if has_id else words[1:]):
            titles[words[0]] = title
    wnids = [by_id[at] for at in sorted(by_id)]
    if not numbered and len(wnids) > 1 and wnids == sorted(wnids):
        raise DatasetError(
            f"{path} is in alphabetical order, which is not the devkit's order, so images would get wrong classes; "
            "give the devkit itself, a list in its order, or lines of `wnid ID` as in map_clsloc.txt"
        )
    return Synsets(_checked(by_id, str(path)), titles)


def _checked(by_id: dict[int, str], where: str) -> dict[int, str]:
    wnids = by_id.values()
    if not by_id or len(set(wnids)) != len(by_id) or any(not _WNID.fullmatch(wnid) for wnid in wnids):
        raise DatasetError(f"{where}: the synsets are not a list of different wnids")
    if sorted(by_id) != list(range(1, len(by_id) + 1)):
        raise DatasetError(f"{where}: the ILSVRC2012_IDs of {len(by_id)} synsets should go from 1 to {len(by_id)}")
    return by_id


def _from_devkit(devkit: Path, name: str) -> bytes | None:
    """A file of the devkit, which is an archive, a folder, or a path to ``meta.mat``; None: there is no such file."""
    try:
        if devkit.is_dir() or devkit.name == _META:
            base = devkit if devkit.is_dir() else devkit.parent
            path = next((file for file in (base / "data" / name, base / name) if file.is_file()), None)
            return path.read_bytes()[:_LARGEST] if path else None
        with tarfile.open(devkit) as tar:
            for info in tar:
                if info.issym() or info.islnk() or info.name.startswith("/") or ".." in info.name.split("/"):
                    raise DatasetError(
                        f"{devkit} holds {info.name!r}, a link or a path that leads out of the archive; it is refused"
                    )
                if info.isreg() and info.name.rpartition("/")[2] == name:
                    if info.size > _LARGEST:
                        raise DatasetError(f"{devkit}: {info.name} has {info.size:,} bytes; this is not a devkit")
                    content = tar.extractfile(info)
                    return content.read() if content else None
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DatasetError(f"{devkit} can't be read: {error}") from error
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from error
