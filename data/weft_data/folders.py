"""The source ``imagefolder``: a folder of class folders, or a tar archive of one.

The images are ``CLASS/image``, and a share of them becomes the validation split. Or they are ``train/CLASS/image``,
with ``validation/`` (or ``val/``, ``valid/``) and ``test/`` beside ``train/``. Images may be in subfolders of a class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from weft_data.archives import members
from weft_data.errors import DatasetError
from weft_data.source import TEST, TRAIN, VALIDATION, Item, Names, Source, class_names, split_off

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
        validation_share: the share of each class that becomes validation images, 0 to below 1, if the source has no
            validation split; default: 0.1.
        seed: determines which images become validation images.

    Raises:
        DatasetError: the source is missing, has no image in a class folder, is an archive that is refused, has a link
            that leads out of the folder, or has a validation split although a share was given.
    """
    if source.is_dir():
        entries = list(_walk(source))
    elif source.is_file():
        entries = _without_common_top([
            _Entry(_parts(member.name), str(source), member.offset, member.size) for member in members(source)
        ])  # fmt: skip
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
    """Split, class, path in the class, and entry of each image among the entries."""
    for entry in entries:
        parts = entry.parts
        if any(part.startswith(".") for part in parts):
            continue  # .DS_Store and the like need no note
        if in_splits and len(parts) > 1 and parts[0] not in _SPLITS:
            raise DatasetError(
                f"{source} holds {'/'.join(parts)!r} beside train/; accepted there: {', '.join(sorted(_SPLITS))}"
            )
        split = _SPLITS[parts[0]] if in_splits and len(parts) > 1 else TRAIN
        rest = parts[1:] if in_splits else parts
        if parts[-1].rpartition(".")[2].lower() not in _EXTENSIONS:
            passed["not an image by its name"] += 1
        elif len(rest) < 2:
            passed["not in a class folder"] += 1
        else:
            yield split, rest[0], "/".join(rest[1:]), entry


def _walk(root: Path) -> Iterator[_Entry]:
    top = root.resolve()
    # Links inside the folder are followed. The walk of a link to a folder above it would never end.
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
    """Remove the top folder from the names: most archives have a single folder that holds everything."""
    tops = {entry.parts[0] for entry in entries if not entry.parts[-1].startswith(".")}
    if len(tops) == 1 and tops != {TRAIN} and any(len(entry.parts) > 2 for entry in entries):
        return [entry._replace(parts=entry.parts[1:]) for entry in entries if len(entry.parts) > 1]
    return entries


def _notes(passed: Counter[str]) -> list[str]:
    return [f"{count:,} file{'s' * (count != 1)} passed over: {why}" for why, count in sorted(passed.items())]
