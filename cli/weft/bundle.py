"""A folder of code → a zip that is the same whenever the code is the same, so that unchanged code is not sent twice."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from weft.errors import BundleError

if TYPE_CHECKING:
    import pathspec

ALWAYS_OUT = frozenset(
    {".git", ".hg", ".svn", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}
    | {".DS_Store", "weft-run"}  # the folder of `weft run`
)
"""Names that never go into a bundle, whatever the ignore files say."""
IGNORE_FILES = (".gitignore", ".weftignore")
MAX_BYTES = 512 << 20
"""Limit of a folder's zip; a zip that is given is measured by the server alone."""
MAX_FILES = 20_000

_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NAMED = 5
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """A zip of code on disk. ``size`` in bytes; ``files`` is None for a zip that was given."""

    path: Path
    sha256: str
    size: int
    files: int | None = None
    left_out: tuple[str, ...] = ()
    """The entries of the folder that no zip can hold, each in words: ``run/agent.sock (a socket)``."""

    @property
    def warning(self) -> str | None:
        """The same as one sentence; None: nothing was left out."""
        if not self.left_out:
            return None
        more = f" and {len(self.left_out) - _NAMED} more" if len(self.left_out) > _NAMED else ""
        return f"left out of the code, as no file: {', '.join(self.left_out[:_NAMED])}{more}"


@contextmanager
def open_bundle(code: Path, leave_out: Path | None = None, *, max_bytes: int = MAX_BYTES) -> Iterator[Bundle | None]:
    """The bundle of a folder (packed into a temporary file) or of a zip (as it is); None when the folder holds no file.
    Sockets, pipes and devices are left out; ``left_out`` names them.

    Args:
        code: the folder or zip.
        leave_out: a file that stays out: the manifest, as it may hold credentials.
        max_bytes: limit of the packed folder.

    Raises:
        BundleError: it can't be packed: says which file and why.
    """
    if code.is_dir():
        with tempfile.TemporaryDirectory(prefix="weft-code-") as scratch:
            target = Path(scratch) / "code.zip"
            special: list[str] = []
            files = pack(code, target, leave_out, max_bytes=max_bytes, left_out=special.append)
            found = Bundle(target, sha256_of(target), target.stat().st_size, files, tuple(special))
            yield found if files else None
        return
    if not code.exists():
        raise BundleError(f"there is no folder or zip {code}")
    try:
        with code.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise BundleError(f"{code} can't be read: {error.strerror}") from error
    if head[:2] != b"PK":
        raise BundleError(f"{code} is neither a folder nor a zip")
    yield Bundle(code, sha256_of(code), code.stat().st_size)


def manifest_in(code: Path) -> Path | None:
    """The manifest that lies in a folder of code under its usual name. It stays out of a bundle, as it may hold
    credentials."""
    return next((code / name for name in ("manifest.yml", "manifest.yaml") if (code / name).is_file()), None)


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(
    folder: Path,
    target: Path,
    leave_out: Path | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    left_out: Callable[[str], None] = lambda name: None,
) -> int:
    """Write the deterministic zip of ``folder``: sorted names, fixed times, modes 644 or 755. Returns how many files.

    Args:
        left_out: called with each socket, pipe and device.

    Raises:
        BundleError: a file can't be read, a link leads out of the folder, or the limits are passed.
    """
    files = list(collect(folder, leave_out, left_out))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in files:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            try:
                executable = path.stat().st_mode & stat.S_IXUSR
                info.create_system = 3  # Unix, on every machine
                info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
                with path.open("rb") as source, archive.open(info, "w", force_zip64=False) as sink:
                    while block := source.read(1 << 20):
                        sink.write(block)
                        if target.stat().st_size > max_bytes:
                            raise _too_large(folder, files, max_bytes)
            except OSError as error:
                raise BundleError(f"{path} can't be read: {error.strerror or error}") from error
            except RuntimeError as error:  # zipfile: more than 2 GiB without zip64
                raise _too_large(folder, files, max_bytes) from error
    if target.stat().st_size > max_bytes:
        raise _too_large(folder, files, max_bytes)
    return len(files)


def collect(
    folder: Path, leave_out: Path | None = None, left_out: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[str, Path]]:
    """The files that go into the bundle, as (name in the zip, real path), sorted by name.

    ``.gitignore`` and ``.weftignore`` count in each folder they stand in, in git's way; if both match a file,
    ``.weftignore`` wins, so it can include (``!weights.bin``) files that git ignores.

    Raises:
        BundleError: as for :func:`pack`.
    """
    root = Path(os.path.realpath(folder))
    unwanted = Path(os.path.realpath(leave_out)) if leave_out else None
    count = 0
    found = []
    for name, path in _walk(root, root, "", [], (root,)):
        if path == unwanted:
            continue
        if (kind := stat.S_IFMT(path.stat().st_mode)) != stat.S_IFREG:
            left_out(f"{name} ({_KINDS.get(kind, 'no plain file')})")
            continue
        count += 1
        if count > MAX_FILES:
            raise BundleError(
                f"{folder} holds more than {MAX_FILES:,} files: is it the code's folder? .weftignore leaves things out"
            )
        found.append((name, path))
    yield from sorted(found)


_Rules = tuple[str, "pathspec.GitIgnoreSpec", list[str]]


def _walk(
    root: Path, folder: Path, prefix: str, rules: list[_Rules], parents: tuple[Path, ...]
) -> Iterator[tuple[str, Path]]:
    rules = [*rules, *_rules_of(folder, prefix)]
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise BundleError(f"{folder} can't be read: {error.strerror}") from error
    for entry in entries:
        name = prefix + entry.name
        is_dir = entry.is_dir()
        if entry.name in ALWAYS_OUT or _ignored(name + "/" if is_dir else name, rules):
            continue
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise BundleError(f"the name of {name!r} is no UTF-8: rename it, or put it into .weftignore") from None
        path = Path(entry.path)
        if entry.is_symlink():
            path = _resolved(root, path, name)
        if is_dir:
            if path in parents:
                raise BundleError(f"the link {name} leads back to a folder it stands in: put it into .weftignore")
            yield from _walk(root, path, name + "/", rules, (*parents, path))
        else:
            yield name, path


def _resolved(root: Path, path: Path, name: str) -> Path:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise BundleError(f"the link {name} → {os.readlink(path)} leads nowhere: put it into .weftignore") from None
    if not target.is_relative_to(root):
        raise BundleError(
            f"the link {name} → {os.readlink(path)} leads out of {root}: "
            "copy what it shows, or put it into .weftignore (data belongs into a data store: `weft data put`)"
        )
    return target


def _rules_of(folder: Path, prefix: str) -> Iterator[_Rules]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        try:
            lines += (folder / name).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"{folder / name} can't be read: {error}") from error
    if lines:
        import pathspec  # takes 15 ms, and most commands pack no folder

        try:
            yield prefix, pathspec.GitIgnoreSpec.from_lines(lines), lines
        except ValueError as error:
            raise BundleError(f"{folder}: an ignore file has a line that is no pattern: {error}") from error


def _ignored(name: str, rules: list[_Rules]) -> bool:
    # As in git: the deepest ignore file that matches it decides.
    for prefix, spec, lines in reversed(rules):
        result = spec.check_file(name.removeprefix(prefix))
        if result.include is None:
            continue
        # `folder/**` is about what is in the folder, not about the folder itself: `!folder/keep` can bring things back.
        if name.endswith("/") and result.index is not None and lines[result.index].strip().endswith("/**"):
            continue
        return result.include
    return False


def _too_large(folder: Path, files: list[tuple[str, Path]], limit: int) -> BundleError:
    largest = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)[:3]
    listed = ", ".join(f"{PurePosixPath(name)} ({size / (1 << 20):,.0f} MiB)" for size, name in largest)
    return BundleError(
        f"the code in {folder} packs to more than {limit >> 20} MiB. Its largest files: {listed}. "
        "Put them into .weftignore, and data into a data store (`weft data put`)"
    )
