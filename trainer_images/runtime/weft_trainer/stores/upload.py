"""Uploads of files to a store: several at once, large files in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft_trainer.errors import Fenced
from weft_trainer.stores.multipart import send_file
from weft_trainer.stores.paths import files_below
from weft_trainer.stores.store import Store

_FILES_AT_ONCE = 8
_PARTS_AT_ONCE = 8
_BATCH = 200


def files_of(folder: Path, inside: Path) -> list[tuple[str, Path]]:
    """Every file below ``folder``, by its path there. A link counts as the file it points at, provided that lies
    ``inside`` the learner's own folder."""
    home = inside.resolve()
    return [(key, path) for key, path in files_below(folder) if _belongs(path, home)]


def upload_files(store: Store, files: Sequence[tuple[str, Path]], patience: float, fenced: Callable[[], bool]) -> None:
    """Raises:
    DataError: the store refused, or was away for ``patience`` seconds.
    Fenced: this attempt is over, so nothing more may be written.
    """

    def put(item: tuple[str, Path]) -> None:
        if fenced():
            raise Fenced
        send_file(store, *item, parts, patience, fenced)

    with (
        ThreadPoolExecutor(_FILES_AT_ONCE, "upload") as pool,
        ThreadPoolExecutor(_PARTS_AT_ONCE, "part") as parts,
    ):
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            store.announce([key for key, path in batch])
            _all(pool.map(put, batch))


def _belongs(path: Path, home: Path) -> bool:
    if not path.is_symlink():
        return True
    return path.is_file() and path.resolve().is_relative_to(home)


def _all(results: Iterable[None]) -> None:
    for _ in results:
        pass
