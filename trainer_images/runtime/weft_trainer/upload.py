"""RESULT_DIR to its place in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft_trainer.errors import Fenced
from weft_trainer.paths import files_below
from weft_trainer.patience import patiently
from weft_trainer.stored import Store

_AT_ONCE = 8
_BATCH = 200


def upload_folder(store: Store, folder: Path, inside: Path, patience: float, fenced: Callable[[], bool]) -> int:
    """Every file below ``folder``, by its path there; the number of files. A link counts as the file it points at,
    provided that lies ``inside`` the learner's own folder.

    Raises:
        DataError: the store refused, or was away for ``patience`` seconds.
        Fenced: this attempt is over, so nothing more may be written.
    """
    home = inside.resolve()
    files = [(key, path) for key, path in files_below(folder) if _belongs(path, home)]
    upload_files(store, files, patience, fenced)
    return len(files)


def upload_files(store: Store, files: Sequence[tuple[str, Path]], patience: float, fenced: Callable[[], bool]) -> None:
    def put(item: tuple[str, Path]) -> None:
        if fenced():
            raise Fenced
        key, path = item
        patiently(lambda: store.put_file(key, path), patience)

    with ThreadPoolExecutor(_AT_ONCE, "upload") as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            store.announce([key for key, _ in batch])
            _all(pool.map(put, batch))


def _belongs(path: Path, home: Path) -> bool:
    if not path.is_symlink():
        return True
    return path.is_file() and path.resolve().is_relative_to(home)


def _all(results: Iterable[None]) -> None:
    for _ in results:
        pass
