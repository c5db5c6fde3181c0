"""The file of a backup: a tar archive that is written and read from front to back, encrypted or not.

weft-backup.json     its origin: version of the format, of Weft, of the database's schema
home/…               files of the home
postgres/000001 …    pg_dump's output (custom format), in pieces
objects/00000001 …   objects of the store
index.json           size and SHA-256 of every member; bucket and key of every object that counts
index.sha256         of index.json; a file without it is not complete

Names of objects are numbers, as keys may be anything. An object that changed while it was copied is in the archive, and
not in the index.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from weft_embedded.backup import encryption
from weft_embedded.home import HomeError

FORMAT = 1
PIECE = 16 << 20
HEADER, INDEX, INDEX_SUM = "weft-backup.json", "index.json", "index.sha256"
_READ = 1 << 20


@dataclass(frozen=True)
class Header:
    """The origin of a backup."""

    format: int
    weft: str
    schema: str
    """The newest migration of its database."""
    created_at: str
    host: str
    installation: str


@dataclass(frozen=True)
class StoredObject:
    """An object of the archive, and where it belongs."""

    bucket: str
    key: str
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Index:
    """The content of an archive."""

    members: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Name → size in bytes and SHA-256."""
    objects: dict[str, StoredObject] = field(default_factory=dict)
    """Name of the member → the object."""
    buckets: list[str] = field(default_factory=list)

    def dump(self) -> bytes:
        return json.dumps(
            {
                "members": self.members,
                "objects": {name: asdict(stored) for name, stored in self.objects.items()},
                "buckets": self.buckets,
            }
        ).encode()

    @classmethod
    def load(cls, data: bytes) -> Index:
        raw = json.loads(data)
        return cls(
            {name: (size, sha256) for name, (size, sha256) in raw["members"].items()},
            {name: StoredObject(**stored) for name, stored in raw["objects"].items()},
            raw["buckets"],
        )


class _Summed(io.RawIOBase):
    """Reads exactly ``size`` bytes, and sums them up. If the source breaks off, zeros follow, and ``broken`` says so:
    the size of a member stands before it."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._read, self._left = read, size
        self._sum = hashlib.sha256()
        self.broken: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = bytearray()
        while len(data) < wanted and self.broken is None:
            try:
                piece = self._read(wanted - len(data))
            except Exception as error:  # the store's client may raise anything in the middle of a body
                self.broken = error
            else:
                data += piece
                if not piece:
                    self.broken = EOFError("it ended early")
        data += bytes(wanted - len(data))
        self._left -= len(data)
        self._sum.update(data)
        return bytes(data)

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()


class Writer:
    """Writes an archive to ``file``."""

    def __init__(self, file: BinaryIO, header: Header, passphrase: str | None) -> None:
        self._sealed = encryption.Encrypting(file, passphrase) if passphrase else None
        target = cast(IO[bytes], self._sealed or file)
        self._tar = tarfile.open(mode="w|", fileobj=target, format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self.index = Index()
        self.add(HEADER, json.dumps(asdict(header), indent=1).encode())

    def add(self, name: str, data: bytes) -> None:
        """Add a member."""
        self.add_stream(name, io.BytesIO(data).read, len(data))

    def add_stream(self, name: str, read: Callable[[int], bytes], size: int) -> Exception | None:
        """Add a member of ``size`` bytes that ``read(n)`` returns. Returns the reason if the source did not provide
        them."""
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, int(time.time())
        source = _Summed(read, size)
        self._tar.addfile(info, cast(IO[bytes], source))
        self.index.members[name] = (size, source.sha256)
        return source.broken

    def finish(self) -> None:
        """Write the index and the end."""
        data = self.index.dump()
        for name, content in ((INDEX, data), (INDEX_SUM, hashlib.sha256(data).hexdigest().encode())):
            self.add(name, content)
        self._tar.close()
        if self._sealed:
            self._sealed.finish()


class ArchiveMember:
    """A member of an archive while it is read."""

    def __init__(self, path: Path, name: str, size: int, file: IO[bytes]) -> None:
        self.name, self.size = name, size
        self._path = path
        self._file = file
        self._sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Raises HomeError: the file is damaged."""
        with _explained(self._path):
            data = self._file.read(size)
        self._sum.update(data)
        return data

    def rest_sha256(self) -> str:
        """Read to the end; the SHA-256 of all that was read."""
        while self.read(_READ):
            pass
        return self._sum.hexdigest()


class Archive:
    """A file that holds a backup.

    Args:
        path: the file.
        passphrase: asked for if the file is encrypted.

    Raises:
        HomeError: it is no backup, or of a newer version of the format.
    """

    def __init__(self, path: Path, passphrase: Callable[[], str]) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                self.encrypted = file.read(len(encryption.MAGIC)) == encryption.MAGIC
        except OSError as error:
            raise HomeError(f"can't read {path}: {error.strerror}") from error
        self._passphrase = passphrase() if self.encrypted else ""
        with _explained(self.path):
            member = next(self._members(lambda _: None), None)
            raw: Any = json.loads(member.read()) if member and member.name == HEADER else None
            if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
                raise HomeError(f"{path} is no backup of Weft")
            if raw["format"] > FORMAT:
                raise HomeError(
                    f"{path} was made by a newer Weft ({raw.get('weft')}, format {raw['format']}; this one reads up to "
                    f"{FORMAT}): install that version, or a later one"
                )
            self.header = Header(**raw)

    def members(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[ArchiveMember]:
        """The members in their order; each is to be read before the next.

        Args:
            progress: gets the position in the file now and then.

        Raises:
            HomeError: the file is damaged.
        """
        source = self._members(progress)
        while True:
            with _explained(self.path):
                member = next(source, None)
            if member is None:
                return
            yield member  # not within: exceptions of the caller have nothing to do with the file

    def check(self, progress: Callable[[int], None] = lambda _: None) -> Index:
        """Read it all, and compare it with its index.

        Raises:
            HomeError: it is not complete, or damaged.
        """
        found: dict[str, tuple[int, str]] = {}
        data = given = b""
        for member in self.members(progress):
            if member.name == INDEX:
                data = member.read()
            elif member.name == INDEX_SUM:
                given = member.read()
            else:
                found[member.name] = (member.size, member.rest_sha256())
        if not given:
            raise HomeError(f"{self.path} is not complete: its end is missing")
        if hashlib.sha256(data).hexdigest().encode() != given:
            raise HomeError(f"{self.path} is damaged: its index does not match its checksum")
        with _explained(self.path):
            index = Index.load(data)
        if wrong := sorted(name for name in index.members.keys() | found if index.members.get(name) != found.get(name)):
            raise HomeError(f"{self.path} is damaged: {wrong[0]} does not match its checksum")
        return index

    def _members(self, progress: Callable[[int], None]) -> Iterator[ArchiveMember]:
        with self.path.open("rb") as file:
            source: io.RawIOBase | BinaryIO = file
            if self.encrypted:
                file.seek(len(encryption.MAGIC))
                source = encryption.Decrypting(file, self._passphrase)
            with tarfile.open(mode="r|", fileobj=cast(IO[bytes], io.BufferedReader(source, _READ))) as tar:
                for info in tar:
                    content = tar.extractfile(info)
                    if content is None:
                        raise HomeError(f"{self.path} is no backup of Weft: it holds {info.name!r}, which is no file")
                    yield ArchiveMember(self.path, info.name, info.size, content)
                    progress(file.tell())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except encryption.BadPassphrase:
        raise HomeError(f"this is not the passphrase of {path}, or the file is damaged") from None
    except (encryption.Damaged, tarfile.TarError, EOFError, UnicodeDecodeError):
        raise HomeError(f"{path} is no backup of Weft, or is damaged or cut off") from None
    except (ValueError, TypeError, KeyError) as error:
        raise HomeError(f"{path} is no backup of Weft, or is damaged: {error}") from None
    except OSError as error:
        raise HomeError(f"can't read {path}: {error.strerror or error}") from error
