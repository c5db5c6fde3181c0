"""Code bundles: good ones are taken as they are, hostile ones refused before anything is unpacked."""

from __future__ import annotations

import hashlib
import io
import os
import random
import stat
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft_core.bundle import BundleError, BundleInfo, check_bundle, normalise_bundle
from weft_core.settings import LimitSettings

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LIMITS = LimitSettings()
SMALL = LimitSettings(bundle_bytes=1 << 20, bundle_unpacked_bytes=4 << 20, bundle_files=10, bundle_ratio=50)


def made(*files: tuple[str, bytes] | zipfile.ZipInfo, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of (name, content), where a name ending in '/' is a folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as bundle, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of duplicates
        for file in files:
            info, content = (file, b"x") if isinstance(file, zipfile.ZipInfo) else (zipfile.ZipInfo("x"), file[1])
            if not isinstance(file, zipfile.ZipInfo):
                info.filename = file[0]  # set later, as the constructor would clean it
                info.compress_type = method
            bundle.writestr(info, content)
    return buffer.getvalue()


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def patched(data: bytes, old: bytes, new: bytes, count: int = -1) -> bytes:
    assert old in data
    return data.replace(old, new, count)


def check(data: bytes, limits: LimitSettings = LIMITS) -> BundleInfo:
    return check_bundle(io.BytesIO(data), limits)


def refused(data: bytes, limits: LimitSettings = LIMITS) -> BundleError:
    with pytest.raises(BundleError) as caught:
        check(data, limits)
    return caught.value


GOOD = made(("train.py", b"print(1)\n" * 100), ("lib/", b""), ("lib/data.bin", bytes(range(256)) * 40), ("leer", b""))


def test_a_good_one(tmp_path: Path) -> None:
    expected = BundleInfo(hashlib.sha256(GOOD).hexdigest(), len(GOOD), 3)
    file = io.BytesIO(GOOD)
    assert check_bundle(file, LIMITS) == expected
    assert file.tell() == 0
    path = tmp_path / "code.zip"
    path.write_bytes(GOOD)
    assert check_bundle(path, LIMITS) == expected


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_deflated(method: int) -> None:
    assert check(made(("a", os.urandom(700_000)), ("b", b"x" * 600_000), method=method)).files == 2


def test_written_as_a_stream_with_sizes_behind_the_data() -> None:
    """As FfDL's client writes them, and every program that can't seek back."""

    class Stream(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: ReadableBuffer) -> int:
            self.data += data
            return memoryview(data).nbytes

    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("train.py", b"print(1)\n" * 1000)
        with bundle.open("large", "w", force_zip64=True) as large:
            large.write(b"x" * 100_000)
    assert check(bytes(stream.data)).files == 2


def test_zip64() -> None:
    """With the sizes of its entries and the place of its directory in zip64 records."""
    name, content = b"train.py", b"print(1)\n"
    extra = struct.pack("<HHQQ", 1, 16, len(content), len(content))
    far = 0xFFFFFFFF
    local = struct.pack("<4sHHHHHLLLHH", b"PK\x03\x04", 45, 0, 0, 0, 0, zlib.crc32(content), far, far, len(name), 20)
    local += name + extra + content
    wide = struct.pack("<HHQQQ", 1, 24, len(content), len(content), 0)
    entry = struct.pack(
        "<4sHHHHHHLLLHHHHHLL",
        *(b"PK\x01\x02", 45, 45, 0, 0, 0, 0, zlib.crc32(content), far, far, len(name), len(wide), 0, 0, 0, 0, far),
    )
    entry += name + wide
    end64 = struct.pack("<4sQHHLLQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry), len(local))
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(local) + len(entry), 1)
    end = struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, far, far, 0)
    data = local + entry + end64 + locator + end
    assert zipfile.ZipFile(io.BytesIO(data)).read("train.py") == content
    assert check(data).files == 1
    assert refused(patched(data, b"PK\x06\x06", b"PK\x06\x00")).code == "malformed"
    assert refused(patched(data, wide, b"\x02" + wide[1:])).code == "malformed"


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        pytest.param(b"", "not_a_zip", "not a zip file", id="nothing"),
        pytest.param(b"\x1f\x8b\x08" + bytes(1000), "not_a_zip", "not a zip file", id="gzip"),
        pytest.param(GOOD[:-30], "truncated", "cut off", id="no end"),
        pytest.param(GOOD[:40], "truncated", "cut off", id="only a beginning"),
        pytest.param(GOOD[10:], "truncated", "is not where its end says", id="no beginning"),
        pytest.param(b"#!/bin/sh\n" + GOOD, "truncated", "is not where its end says", id="something before it"),
        pytest.param(GOOD + b"more", "malformed", "data after the end", id="something behind it"),
        pytest.param(made(), "empty", "holds no file", id="no entry"),
        pytest.param(made(("only/", b"")), "empty", "holds no file", id="no file"),
        pytest.param(made(("../evil.py", b"x")), "path_traversal", "'../evil.py' leads out", id="dot dot"),
        pytest.param(made(("a/../../evil.py", b"x")), "path_traversal", "leads out", id="dot dot inside"),
        pytest.param(made(("a/..", b"x")), "path_traversal", "leads out", id="dot dot at the end"),
        pytest.param(made(("/etc/passwd", b"x")), "absolute_path", "'/etc/passwd' is an absolute path", id="absolute"),
        pytest.param(made(("C:/evil.py", b"x")), "absolute_path", "absolute path", id="drive letter"),
        pytest.param(made(("..\\evil.py", b"x")), "name", "a backslash", id="backslash"),
        pytest.param(made(("./", b""), (".", b"x")), "name", "a file without a name", id="no name"),
        pytest.param(patched(GOOD, b"leer", b"le\x00r"), "name", "control character", id="NUL"),
        pytest.param(patched(GOOD, b"leer", b"le\nr"), "name", "control character", id="newline"),
        pytest.param(patched(GOOD, b"leer", b"le\xffr"), "name", "not UTF-8", id="no UTF-8"),
        pytest.param(made(("x" * 256, b"x")), "name", "256 bytes, accepted are 255", id="long part"),
        pytest.param(made(("x/" * 600, b"")), "name", "1,200 bytes, accepted are 1,024", id="long path"),
        pytest.param(
            made(special("link", stat.S_IFLNK | 0o777)), "special_file", "'link' is a symbolic link", id="link"
        ),
        pytest.param(made(special("null", stat.S_IFCHR)), "special_file", "'null' is a device", id="device"),
        pytest.param(made(special("pipe", stat.S_IFIFO)), "special_file", "'pipe' is a pipe", id="pipe"),
        pytest.param(made(special("folder", stat.S_IFDIR)), "malformed", "disagree on whether", id="folder as a file"),
        pytest.param(made(("a", b"1"), ("b", b"2"), ("a", b"3")), "duplicate", "'a' is in the zip twice", id="twice"),
        pytest.param(
            made(("a/", b""), ("a/", b""), ("b", b"")), "duplicate", "'a/' is in the zip twice", id="folder twice"
        ),
        pytest.param(
            made(("a", b"1"), ("./a", b"2")), "duplicate", "is in the zip twice", id="the same in other words"
        ),
        pytest.param(made(("a", b"1"), ("a/", b"")), "conflict", "one is a file where", id="file and folder"),
        pytest.param(
            made(("a/b", b"1"), ("a", b"2"), ("a.b", b"")), "conflict", "one is a file", id="file as a folder"
        ),
    ],
)
def test_refused(data: bytes, code: str, words: str) -> None:
    error = refused(data)
    assert (error.code, words in str(error)) == (code, True), str(error)


def test_names_that_differ_are_no_duplicates() -> None:
    assert check(made(("A", b"1"), ("a", b"2"), ("ä", b"3"), ("a b", b"4"), ("a\u202fb", b"5"))).files == 5


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(method: int) -> None:
    assert "accepted are stored and deflated" in str(refused(made(("a", b"x"), method=method)))


def test_encrypted() -> None:
    data = bytearray(made(("secret.py", b"x")))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    error = refused(bytes(data))
    assert (error.code, "'secret.py' is encrypted" in str(error)) == ("encrypted", True)


def test_a_header_that_hides_encryption() -> None:
    data = bytearray(made(("secret.py", b"x")))
    data[6] |= 1
    assert refused(bytes(data)).code == "malformed"


def test_two_names_for_one_entry() -> None:
    """A checker may read one of the two and an unpacker the other, so the two must agree."""
    assert "disagree" in str(refused(patched(GOOD, b"train.py", b"other.py", 1)))


# --- bombs ---------------------------------------------------------------------------------------------------------


def test_limits_name_themselves() -> None:
    assert "bytes, accepted are 1,048,576" in str(refused(made(("a", os.urandom(1_100_000))), SMALL))
    many = refused(made(*((f"f{n}", b"") for n in range(11))), SMALL)
    assert (many.code, str(many)) == ("too_many_files", "the zip has 11 files and folders, accepted are 10")
    large = refused(made(*((f"f{n}", b"x" * 1_000_000) for n in range(5))), SMALL)
    assert (large.code, "accepted are 4,194,304" in str(large)) == ("unpacked_size", True)
    bomb = refused(made(("zeros", bytes(2_000_000))), SMALL)
    assert (bomb.code, "'zeros' unpacks to 2,000,000 bytes" in str(bomb)) == ("ratio", True)
    assert "accepted is 50:1" in str(bomb)
    # Below 1 MiB any ratio is fine.
    assert check(made(("zeros", bytes(1_000_000))), SMALL).files == 1


def lying(data: bytes, size: int, claimed: int) -> bytes:
    """The zip with ``claimed`` in both headers where ``size`` stands."""
    return patched(data, struct.pack("<L", size), struct.pack("<L", claimed))


def test_a_bomb_that_lies_about_its_size() -> None:
    data = lying(made(("zeros", bytes(30_000_000))), 30_000_000, 1000)
    tracemalloc.start()
    error = refused(data, SMALL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (error.code, "more than the 1,000 bytes that it says" in str(error)) == ("ratio", True)
    assert peak < 4 << 20


def test_one_that_holds_less_than_it_says() -> None:
    assert refused(lying(made(("a", b"x" * 1000)), 1000, 2000)).code == "damaged"


def test_damaged_content() -> None:
    content = random.Random(1).randbytes(1000)
    data = bytearray(made(("a", content), method=zipfile.ZIP_STORED))
    data[100] ^= 1
    assert refused(bytes(data)).code == "damaged"
    data = bytearray(GOOD)
    data[45:49] = b"\xff\xff\xff\xff"
    assert refused(bytes(data)).code == "damaged"


def test_a_large_one_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name in "abc":
            bundle.writestr(name, random.Random(name).randbytes(6 << 20))
    tracemalloc.start()
    check_bundle(path, LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_overlapping_entries() -> None:
    """The bomb without nesting: many entries whose data is the same bytes."""
    bundle = made(("a", b"x" * 1000))
    directory = bundle[bundle.index(b"PK\x01\x02") : bundle.index(b"PK\x05\x06")]
    local = bundle[: bundle.index(b"PK\x01\x02")]
    other = bytearray(directory)
    end = bytearray(bundle[bundle.index(b"PK\x05\x06") :])
    end[8:12] = struct.pack("<HH", 2, 2)
    end[12:16] = struct.pack("<L", 2 * len(directory))
    error = refused(local + directory + bytes(other) + bytes(end))
    assert error.code == "duplicate"
    # With another name inside the first one's data: the quoted overlap.
    inner = made(("b", b"y" * 10), method=zipfile.ZIP_STORED)
    outer = made(("a", inner[: inner.index(b"PK\x01\x02")]), method=zipfile.ZIP_STORED)
    start = outer.index(b"PK\x03\x04", 4)
    quoted = bytearray(inner[inner.index(b"PK\x01\x02") : inner.index(b"PK\x05\x06")])
    quoted[42:46] = struct.pack("<L", start)
    at = outer.index(b"PK\x01\x02")
    first = outer[at : outer.index(b"PK\x05\x06")]
    end = bytearray(outer[outer.index(b"PK\x05\x06") :])
    end[8:12] = struct.pack("<HH", 2, 2)
    end[12:16] = struct.pack("<L", len(first) + len(quoted))
    error = refused(outer[:at] + first + bytes(quoted) + bytes(end))
    assert (error.code, str(error)) == ("overlap", "'a' and 'b' share bytes of the zip")


def test_a_directory_that_announces_what_it_does_not_have() -> None:
    end = GOOD.index(b"PK\x05\x06")
    for entries in (1, 5, 60000):
        data = bytearray(GOOD)
        data[end + 8 : end + 12] = struct.pack("<HH", entries, entries)
        assert refused(bytes(data)).code in ("truncated", "malformed", "too_many_files")


# --- FfDL's absolute paths -----------------------------------------------------------------------------------------


def normalised(source: io.BytesIO, target: Path, limits: LimitSettings = LIMITS, **more: Any) -> BundleInfo:
    """Rewritten, and checked."""
    normalise_bundle(source, target, limits, **more)
    return check_bundle(target, limits)


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        return bundle.namelist()


@pytest.mark.parametrize(
    ("written", "relative"),
    [
        (["/home/u/model/", "/home/u/model/train.py", "/home/u/model/lib/", "/home/u/model/lib/a.py"],
         ["train.py", "lib/", "lib/a.py"]),
        (["/home/u/model/train.py"], ["train.py"]),
        (["/train.py", "/lib/a.py"], ["train.py", "lib/a.py"]),
        (["/u/model/lib/a.py", "/u/model/lab/b.py"], ["lib/a.py", "lab/b.py"]),
        (["/u/model/", "/u/model/lib/", "/u/model/lib/a.py"], ["lib/", "lib/a.py"]),
        (["//u//model/a.py", "//u/model/b.py"], ["a.py", "b.py"]),
        (["../model/a.py", "../model/lib/b.py"], ["a.py", "lib/b.py"]),
        (["../../a.py"], ["a.py"]),
    ],
)  # fmt: skip
def test_the_common_root_is_taken_off(tmp_path: Path, written: list[str], relative: list[str]) -> None:
    source = io.BytesIO(made(*((name, b"" if name.endswith("/") else name.encode() * 50) for name in written)))
    target = tmp_path / "code.zip"
    info = normalised(source, target)
    assert names(target) == relative
    assert info == check_bundle(target, LIMITS)
    files = [name for name in written if not name.endswith("/")]
    with zipfile.ZipFile(target) as bundle:
        contents = [bundle.read(name) for name in relative if not name.endswith("/")]
    assert contents == [name.encode() * 50 for name in files]


@pytest.mark.parametrize(
    ("written", "relative"),
    [
        (["model/lib/", "model/lib/a.py", "model/train.py"], ["lib/", "lib/a.py", "train.py"]),
        (["model/lib/", "model/lib/a.py"], ["lib/", "lib/a.py"]),
        (["up/model/train.py"], ["train.py"]),
        (["/home/u/model/lib/", "/home/u/model/lib/a.py"], ["lib/", "lib/a.py"]),
        (["lib/", "lib/a.py"], ["lib/", "lib/a.py"]),
        (["lib/", "lib/sub/", "lib/sub/a.py"], ["lib/", "lib/sub/", "lib/sub/a.py"]),
        (["train.py", "lib/", "lib/a.py"], ["train.py", "lib/", "lib/a.py"]),
    ],
)
def test_a_folder_that_ffdls_client_has_zipped(tmp_path: Path, written: list[str], relative: list[str]) -> None:
    """With a slash at its end or without: it writes an entry for each folder in it, and none for itself."""
    source = io.BytesIO(made(*((name, b"" if name.endswith("/") else b"x") for name in written)))
    target = tmp_path / "code.zip"
    normalised(source, target, of_folder=True)
    assert names(target) == relative


def test_a_link_that_ffdls_client_has_followed(tmp_path: Path) -> None:
    """It packs the content of the file that a link leads to, as an entry of the link's kind."""
    link = special("run.sh", stat.S_IFLNK | 0o777)
    source = io.BytesIO(made(link))
    normalised(source, tmp_path / "code.zip", of_folder=True)
    with zipfile.ZipFile(tmp_path / "code.zip") as bundle:
        assert bundle.read("run.sh") == b"x"
        assert bundle.getinfo("run.sh").external_attr >> 16 == stat.S_IFREG | 0o777
    with pytest.raises(BundleError, match=r"'run\.sh' is a symbolic link"):
        normalise_bundle(source, tmp_path / "other.zip", LIMITS)


def test_a_link_to_a_folder_ends_the_zip_of_ffdls_client(tmp_path: Path) -> None:
    """It can't read that folder, and silently leaves out everything after it, so the zip is better refused."""
    source = io.BytesIO()
    with zipfile.ZipFile(source, "w") as bundle:
        bundle.writestr("a.py", b"x")
        bundle.writestr(special("data", stat.S_IFLNK | 0o777), b"")
    with pytest.raises(BundleError, match="'data' is a symbolic link"):
        normalise_bundle(source, tmp_path / "code.zip", LIMITS, of_folder=True)


def test_other_zips_stay_byte_for_byte(tmp_path: Path) -> None:
    target = tmp_path / "code.zip"
    assert normalised(io.BytesIO(GOOD), target).sha256 == hashlib.sha256(GOOD).hexdigest()
    assert target.read_bytes() == GOOD


def test_the_same_code_gives_the_same_bundle_and_keeps_its_modes(tmp_path: Path) -> None:
    hashes = set()
    for year in (2001, 2020):
        info = zipfile.ZipInfo("x", (year, 1, 1, 0, 0, 0))
        info.filename, info.external_attr = "/u/run.sh", (stat.S_IFREG | 0o755) << 16
        hashes.add(normalised(io.BytesIO(made(info)), tmp_path / "code.zip").sha256)
    assert len(hashes) == 1
    with zipfile.ZipFile(tmp_path / "code.zip") as bundle:
        assert bundle.getinfo("run.sh").external_attr >> 16 == stat.S_IFREG | 0o755


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(made(("/u/a", b"x"), ("b", b"x")), "absolute_path", id="mixed"),
        pytest.param(made(("/u/../../etc/passwd", b"x")), "path_traversal", id="dot dot"),
        pytest.param(made(("/u/a", b"1"), ("/u//a", b"2")), "duplicate", id="the same twice"),
        pytest.param(made(("/u", b"1"), ("/u/a", b"2")), "conflict", id="file as a folder"),
        pytest.param(made(("/u/zeros", bytes(2_000_000))), "ratio", id="bomb"),
        pytest.param(b"no zip", "not_a_zip", id="no zip"),
    ],
)
def test_what_can_t_be_normalised_leaves_nothing(tmp_path: Path, data: bytes, code: str) -> None:
    target = tmp_path / "code.zip"
    with pytest.raises(BundleError) as caught:
        normalised(io.BytesIO(data), target, SMALL)
    assert caught.value.code == code
    assert not target.exists()


def test_a_backslash_is_found_by_the_check_that_follows(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        normalised(io.BytesIO(made(("..\\evil", b"x"))), tmp_path / "code.zip", SMALL)
    assert caught.value.code == "name"


def test_a_bomb_that_lies_is_found_by_the_check_that_follows(tmp_path: Path) -> None:
    data = lying(made(("/u/zeros", bytes(30_000_000))), 30_000_000, 1000)
    with pytest.raises(BundleError) as caught:
        normalised(io.BytesIO(data), tmp_path / "code.zip", SMALL)
    assert caught.value.code == "ratio"


@pytest.mark.parametrize(
    ("written", "of_folder", "command", "relative"),
    [
        # FfDL's example has the folder's name in the command.
        (
            ["keras-test/mnist_cnn.py"],
            True,
            "pip install keras && python3 keras-test/mnist_cnn.py --d ${DATA_DIR}/x",
            None,
        ),
        (["keras-test/mnist_cnn.py"], True, "python3 mnist_cnn.py", ["mnist_cnn.py"]),
        (
            ["/home/u/keras-test/a.py", "/home/u/keras-test/b/c.py"],
            True,
            "python keras-test/a.py",
            ["keras-test/a.py", "keras-test/b/c.py"],
        ),
        (["/home/u/keras-test/a.py"], False, "cd u/keras-test; ./a.py", ["u/keras-test/a.py"]),
        (["m/a.py", "m/b.py"], True, "cd m && python a.py", None),
        (["m/a.py", "m/lib/b.py"], True, "python -m m.lib.b", None),
        (["m/a.py", "m/conf.yml"], True, "tool --config=m/conf.yml", None),
        # A word that happens to be the folder's name.
        (["model/train.py"], True, "python train.py --output model", ["train.py"]),
        (["model/train.py"], True, "bash -c 'exec python train.py' model", ["train.py"]),
        (["model/train.py", "model/d.csv"], True, "python train.py --data model/d.csv", ["train.py", "d.csv"]),
        (["model/train.py", "model/model/x.py"], True, "python model/x.py", ["train.py", "model/x.py"]),
        # Also for a zip that users made themselves; it is not changed without need.
        (["m/", "m/train.py"], False, "python m/train.py", None),
        (["m/", "m/train.py"], False, "tool", None),
        (["m/", "m/train.py", "m/lib/", "m/lib/a.py"], False, "python train.py", ["train.py", "lib/", "lib/a.py"]),
        (["m/train.py", "n/train.py"], False, "python train.py", None),
    ],
)
def test_a_command_finds_what_it_names(
    tmp_path: Path, written: list[str], of_folder: bool, command: str, relative: list[str] | None
) -> None:
    data = made(*((name, b"" if name.endswith("/") else name.encode()) for name in written))
    target = tmp_path / "code.zip"
    normalised(io.BytesIO(data), target, of_folder=of_folder, command=command)
    assert names(target) == (relative or written)
    if relative is None:
        assert target.read_bytes() == data


def test_other_paths_cost_no_unpacking(tmp_path: Path) -> None:
    """Compressed entries are copied as they are: the old client waits only 10 s for its answer."""
    info = special("/u/m/run.sh", stat.S_IFREG | 0o755)
    info.compress_type = zipfile.ZIP_DEFLATED
    data = made(info, ("/u/m/größe.bin", os.urandom(5000)), ("/u/m/text", b"text " * 1000), ("/u/m/empty", b""))
    target = tmp_path / "code.zip"
    normalised(io.BytesIO(data), target)
    before, after = zipfile.ZipFile(io.BytesIO(data)).infolist(), zipfile.ZipFile(target).infolist()
    assert [member.filename for member in after] == ["run.sh", "größe.bin", "text", "empty"]
    for old, new in zip(before, after, strict=True):
        assert (old.CRC, old.compress_size, old.file_size) == (new.CRC, new.compress_size, new.file_size)


@pytest.mark.slow
def test_more_entries_than_a_plain_directory_holds(tmp_path: Path) -> None:
    many = LimitSettings(bundle_files=70_000)
    data = made(*((f"/u/{number}", b"") for number in range(66_000)))
    assert normalised(io.BytesIO(data), tmp_path / "code.zip", many).files == 66_000
    assert len(names(tmp_path / "code.zip")) == 66_000


# --- anything ------------------------------------------------------------------------------------------------------


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        return {info.filename: bundle.read(info) for info in bundle.infolist()}


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """The good one with a few bytes changed, cut out or put in."""
    data = GOOD
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        new = draw(st.one_of(st.binary(max_size=8), st.sampled_from([b"\xff" * 4, bytes(4), b"PK\x05\x06"])))
        data = data[:at] + new + data[at + draw(st.sampled_from([len(new), 0, 8])) :]
    return data


@settings(deadline=None)  # the machine may be busy
@given(st.one_of(broken(), st.binary()))
def test_what_is_accepted_unpacks_to_what_was_checked(data: bytes) -> None:
    try:
        info = check(data, SMALL)
    except BundleError:
        return
    contents = unpacked(data)
    assert info.files == sum(not name.endswith("/") for name in contents)
    assert sum(map(len, contents.values())) <= SMALL.bundle_unpacked_bytes
