"""The file of a backup, its checks, and the buckets in it; `tests/e2e/test_backup.py` restores one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import boto3
import pytest
from mypy_boto3_s3 import S3Client
from tests.embedded.helpers import Weft, wait_for
from tests.servers import Servers

from weft_core.settings import S3Settings
from weft_core.store.backups import BackupRuns, hold_deletions
from weft_embedded.backup import archive as archives
from weft_embedded.backup import encryption
from weft_embedded.backup.__main__ import main
from weft_embedded.backup.archive import Archive, Header, Writer
from weft_embedded.backup.buckets import Buckets
from weft_embedded.home import HomeError

HEADER = Header(archives.FORMAT, "0.1.0", "0001", "2026-01-01T00:00:00+00:00", "host", "inst-1")


def never() -> str:
    raise AssertionError("no passphrase is asked for")


def make(path: Path, passphrase: str | None = None, header: Header = HEADER) -> Path:
    path.write_bytes(made(passphrase, header))
    return path


@cache
def made(passphrase: str | None, header: Header = HEADER, data: bytes = b"x" * 3_000_000) -> bytes:
    """A key that is derived from a passphrase costs half a second, on purpose."""
    file = BytesIO()
    writer = Writer(file, header, passphrase)
    writer.add("home/weft.toml", b"[s3]\n")
    writer.add("postgres/000001", data)
    writer.finish()
    return file.getvalue()


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, passphrase: str | None) -> None:
    data = os.urandom(3 << 20)
    path = tmp_path / "a"
    path.write_bytes(made(passphrase, data=data))
    assert (b"[s3]" in path.read_bytes()) == (passphrase is None), "an encrypted file shows nothing"
    archive = Archive(path, (lambda: passphrase) if passphrase else never)
    assert archive.header == HEADER
    assert archive.encrypted == (passphrase is not None)
    assert set(archive.check().members) == {"weft-backup.json", "home/weft.toml", "postgres/000001"}
    assert {member.name: member.read() for member in archive.members()}["postgres/000001"] == data


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
@pytest.mark.parametrize("left", [0, 3, 600, 1_500_000, 3_000_000])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, passphrase: str | None, left: int) -> None:
    path = make(tmp_path / "a", passphrase)
    os.truncate(path, left)
    with pytest.raises(HomeError, match=r"no backup of Weft|is not complete|cut off|passphrase"):
        Archive(path, lambda: passphrase or "").check()


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_a_file_that_was_changed_is_refused(tmp_path: Path, passphrase: str | None) -> None:
    path = make(tmp_path / "a", passphrase)
    content = bytearray(path.read_bytes())
    content[2_000_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(HomeError, match="damaged"):
        Archive(path, lambda: passphrase or "").check()


def test_pieces_of_an_encrypted_file_keep_their_order(tmp_path: Path) -> None:
    path = make(tmp_path / "a", "correct horse")
    content, piece = path.read_bytes(), (1 << 20) + 16
    begin = len(encryption.MAGIC) + 16 + 7
    first, second = content[begin : begin + piece], content[begin + piece : begin + 2 * piece]
    path.write_bytes(content[:begin] + second + first + content[begin + 2 * piece :])
    with pytest.raises(HomeError, match="damaged"):
        Archive(path, lambda: "correct horse").check()


def test_another_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match=r"this is not the passphrase of "):
        Archive(make(tmp_path / "a", "correct horse"), lambda: "battery")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (replace(HEADER, format=archives.FORMAT + 1, weft="9.0"), "was made by a newer Weft (9.0, format"),
        (replace(HEADER, schema="9999", weft="9.0"), "was made by a newer Weft (9.0, schema 9999)"),
    ],
)
def test_what_a_newer_weft_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: Header, said: str
) -> None:
    path = make(tmp_path / "a", header=header)
    assert main(["restore", str(path), "--home", str(tmp_path / "home")]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
    assert [left.name for left in tmp_path.iterdir()] == ["a"]


def test_a_home_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "a")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.tex").write_text("x")
    assert main(["restore", str(path), "--home", str(tmp_path / "home")]) == 1
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "home/thesis.tex").rename(tmp_path / "home/version")
    assert main(["restore", str(path), "--home", str(tmp_path / "home")]) == 1
    assert "is an installation already" in capsys.readouterr().err
    assert (tmp_path / "home/version").read_text() == "x"


def test_no_file_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", str(tmp_path / "b"), "--home", str(tmp_path / "home")]) == 1
    assert "there is nothing to back up" in capsys.readouterr().err
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home/version").write_text("1\n")
    (tmp_path / "b").write_text("x")
    assert main(["backup", str(tmp_path / "b"), "--home", str(tmp_path / "home")]) == 1
    assert "exists: give another name" in capsys.readouterr().err
    assert (tmp_path / "b").read_text() == "x"


# --- with real servers ---


@pytest.fixture
def settings(servers: Servers) -> S3Settings:
    return servers.bucket()


@pytest.fixture
def s3(settings: S3Settings) -> S3Client:
    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name="us-east-1",
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key.get_secret_value(),
    )


class OneBucket(Buckets):
    """The store of the tests has the buckets of other tests, too."""

    def __init__(self, settings: S3Settings) -> None:
        super().__init__(settings.endpoint, settings)
        self._name = settings.bucket

    def names(self) -> list[str]:
        return [self._name]


def test_objects_come_back_with_all_that_belongs_to_them(settings: S3Settings, s3: S3Client, tmp_path: Path) -> None:
    large = os.urandom(9 << 20)
    keys = {"a/ü + %41/b": b"x", "empty": b"", "large.bin": large, "a/" * 60 + "b": b"long"}
    for key, body in keys.items():
        s3.put_object(Bucket=settings.bucket, Key=key, Body=body, ContentType="text/x-weft", Metadata={"made-by": "me"})
    path, buckets = tmp_path / "a", OneBucket(settings)
    with path.open("wb") as file:
        writer = Writer(file, HEADER, None)
        assert buckets.save(writer, lambda _: None) == len(keys)
        writer.finish()
    for key in keys:
        s3.delete_object(Bucket=settings.bucket, Key=key)
    archive = Archive(path, never)
    index = archive.check()
    assert index.buckets == [settings.bucket]
    buckets.put(archive.members(), index.objects)
    for key, body in keys.items():
        found = s3.get_object(Bucket=settings.bucket, Key=key)
        assert found["Body"].read() == body
        assert (found["ContentType"], found["Metadata"]) == ("text/x-weft", {"made-by": "me"})


def test_a_checkpoint_is_in_a_backup_as_a_whole(settings: S3Settings, s3: S3Client) -> None:
    """While it is copied, the learner stores the next one, and removes the one before, as with ``keep: 1``."""

    def store(number: int) -> None:
        for file in range(3):
            key = f"job-1/checkpoints/files/{number}-{file}"
            s3.put_object(Bucket=settings.bucket, Key=key, Body=bytes(2 << 20))
        s3.put_object(Bucket=settings.bucket, Key=f"job-1/checkpoints/generations/1-{number}.json", Body=b"{}")

    def remove(number: int) -> None:
        s3.delete_object(Bucket=settings.bucket, Key=f"job-1/checkpoints/generations/1-{number}.json")
        for file in range(3):
            s3.delete_object(Bucket=settings.bucket, Key=f"job-1/checkpoints/files/{number}-{file}")

    store(1)
    newest = 1

    def go_on(_: int) -> None:
        nonlocal newest
        if newest < 3:
            newest += 1
            store(newest)
            remove(newest - 1)

    writer = Writer(BytesIO(), HEADER, None)
    OneBucket(settings).save(writer, go_on)
    keys = {stored.key.partition("checkpoints/")[2] for stored in writer.index.objects.values()}
    complete = {re.sub(r"\D*1-(\d+).*", r"\1", key) for key in keys if key.startswith("generations/")}
    assert complete == {"3"}
    assert {f"files/3-{file}" for file in range(3)} <= keys


def test_one_backup_at_a_time_holds_deletions_until_it_ends(servers: Servers) -> None:
    with servers.database_url() as url:
        direct = url.replace("postgresql+psycopg://", "postgresql://")
        with hold_deletions(direct), pytest.raises(BackupRuns), hold_deletions(direct):
            raise AssertionError("there were two")
        with hold_deletions(direct):
            pass


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weft]:
    """A home that has been up, and is down."""
    weft = Weft(tmp_path_factory.mktemp("backup") / "home")
    weft.up("--no-worker", "--no-api")
    assert weft.run("down", "--grace", "0").returncode == 0
    yield weft
    shutil.rmtree(weft.home)


def test_an_interrupted_command_leaves_nothing(home: Weft, tmp_path: Path) -> None:
    """A home that is down is backed up, too: that takes its servers, so there is time to interrupt it."""
    target = tmp_path / "folder"
    target.mkdir()
    backup = _command(home, "backup", str(target))
    process = subprocess.Popen(backup, env=home.environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "starting" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert list(target.iterdir()) == []
    assert home.processes() == {}

    done = subprocess.run(backup, env=home.environment, capture_output=True, text=True, check=True)
    file = Path(done.stdout.strip())
    assert [file] == list(target.iterdir())
    assert "It is not encrypted, and holds the keys and passwords" in done.stderr

    other = Weft(tmp_path / "other")
    restore = _command(other, "restore", str(file))
    process = subprocess.Popen(restore, env=other.environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "starting" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert {left.name for left in tmp_path.iterdir()} == {"folder"}
    wait_for(lambda: not _standing_in(tmp_path), "its servers have ended")

    subprocess.run(restore, env=other.environment, check=True)
    assert {left.name for left in tmp_path.iterdir()} == {"folder", "other"}
    kept = [(weft.home / "weft.toml").read_text() for weft in (home, other)]
    assert kept[0] == kept[1]
    identities = [json.loads((weft.home / "s3/identities.json").read_text()) for weft in (home, other)]
    assert identities[0] == identities[1]


def _command(weft: Weft, *words: str) -> list[str]:
    return [sys.executable, "-m", "weft_embedded.backup", *words, "--home", str(weft.home)]


def _standing_in(folder: Path) -> list[str]:
    """The processes whose working directory is in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if where.startswith(str(folder)):
            found.append(process.name)
    return found
