"""The source ``imagefolder``: a folder of class folders, or a tar archive of one.

Either ``CLASS/image`` (then a share becomes the validation split), or ``train/CLASS/image`` with ``validation/`` (or
``val/``, ``valid/``) and ``test/`` beside it. Images may lie in sub-folders of their class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from weft.errors import DatasetError
from weft.prepare.archives import members
from weft.prepare.source import TEST, TRAIN, VALIDATION, Item, Names, Source, class_names, split_off

_SPLITS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "valid": VALIDATION, "test": TEST}
_EXTENSIONS = frozenset(("jpg", "jpeg", "jpe", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm"))
DEFAULT_SHARE = 0.1


class _Entry(NamedTuple):
    parts: tuple[str, ...]  # of the path below the source
    path: str
    offset: int
    size: int


def image_folder(source: Path, *, validation_share: float | None = None, seed: int = 0) -> Source:
    """List a folder, or a tar archive, of class folders.

    Args:
        validation_share: how much of each class becomes validation, 0 to below 1, where the source has no validation
            split of its own; default: 0.1.
        seed: chooses which.

    Raises:
        DatasetError: there is no such source, it holds no image in a class folder, an archive is hostile, a link leads
            out of the folder, or it has a validation split and a share was asked for too.
    """
    if source.is_dir():
        entries = list(_walk(source))
    elif source.is_file():
        entries = _without_common_top([_Entry(_parts(one.name), str(source), one.offset, one.size)
                                       for one in members(source)])  # fmt: skip
    else:
        raise DatasetError(f"there is no folder or tar archive {source}")
    passed: Counter[str] = Counter()
    in_splits = any(entry.parts[0] == TRAIN and len(entry.parts) > 2 for entry in entries)
    sorted_out = sorted(_in_classes(entries, in_splits, passed, source))
    classes = class_names({name for _, name, _, _ in sorted_out})
    if not classes:
        raise DatasetError(
            f"{source} holds no image in a class folder; expected CLASS/image.jpg or train/CLASS/image.jpg"
            + "".join(f" ({why})" for why in _notes(passed))
        )
    index = {name: number for number, name in enumerate(classes)}
    splits: dict[str, list[Item]] = {}
    names = Names()
    for split, name, path, entry in sorted_out:
        item = Item(entry.path, entry.offset, entry.size, index[name], names(split, index[name], path))
        splits.setdefault(split, []).append(item)
    if VALIDATION in splits and validation_share is not None:
        raise DatasetError(f"{source} has a validation split of its own, so no share of it can be split off")
    share = DEFAULT_SHARE if validation_share is None else validation_share
    if VALIDATION not in splits and share > 0:
        training, validation = split_off(splits.get(TRAIN, []), share, seed)
        splits = {**splits, TRAIN: training, **({VALIDATION: validation} if validation else {})}
    return Source("imagefolder", classes, splits, notes=_notes(passed))


def _in_classes(
    entries: Iterable[_Entry], in_splits: bool, passed: Counter[str], source: Path
) -> Iterator[tuple[str, str, str, _Entry]]:
    """Split, class, path in the class, entry; of the images among the entries."""
    for entry in entries:
        parts = entry.parts
        if any(part.startswith(".") for part in parts):
            continue  # .DS_Store and its like are worth no word
        if in_splits and len(parts) > 1 and parts[0] not in _SPLITS:
            raise DatasetError(
                f"{source} holds {'/'.join(parts)!r} beside train/; accepted there: {', '.join(sorted(_SPLITS))}"
            )
        split = _SPLITS[parts[0]] if in_splits and len(parts) > 1 else TRAIN
        rest = parts[1:] if in_splits else parts
        if parts[-1].rpartition(".")[2].lower() not in _EXTENSIONS:
            passed["no image by its name"] += 1
        elif len(rest) < 2:
            passed["in no class folder"] += 1
        else:
            yield split, rest[0], "/".join(rest[1:]), entry


def _walk(root: Path) -> Iterator[_Entry]:
    top = root.resolve()
    # Links are followed inside the folder; a folder that links to one above it would never end.
    for folder, folders, files in os.walk(root, followlinks=True, onerror=_unreadable):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (here / name).is_symlink():
                _refuse_outside(here / name, top)
                if here.resolve().is_relative_to((here / name).resolve()):
                    raise DatasetError(f"{here / name} is a link to a folder above it")
        for name in sorted(files):
            path = here / name
            if path.is_symlink():
                _refuse_outside(path, top)
            try:
                size = path.stat().st_size
            except OSError as error:
                raise DatasetError(f"{path}: {error.strerror}") from error
            yield _Entry(path.relative_to(root).parts, str(path), 0, size)


def _refuse_outside(link: Path, top: Path) -> None:
    if not link.resolve().is_relative_to(top):
        raise DatasetError(f"{link} is a link that leads out of the folder, to {link.resolve()}; it is refused")


def _unreadable(error: OSError) -> None:
    raise DatasetError(f"{error.filename}: {error.strerror}")


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _without_common_top(entries: list[_Entry]) -> list[_Entry]:
    """Most archives hold one folder that holds all."""
    tops = {entry.parts[0] for entry in entries if not entry.parts[-1].startswith(".")}
    if len(tops) == 1 and tops != {TRAIN} and any(len(entry.parts) > 2 for entry in entries):
        return [entry._replace(parts=entry.parts[1:]) for entry in entries if len(entry.parts) > 1]
    return entries


def _notes(passed: Counter[str]) -> list[str]:
    return [f"{count:,} file{'s' * (count != 1)} passed over: {why}" for why, count in sorted(passed.items())]
