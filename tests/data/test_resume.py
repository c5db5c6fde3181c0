"""Killed in the middle and started again: nothing is doubled, lost or done a second time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from tests.api.conftest import Api, api, api_settings
from tests.data.conftest import class_folders, picture

from weft.client import Client
from weft.commands.store_target import StoreTarget
from weft.resources.data import Place
from weft_data.errors import DatasetError
from weft_data.folders import image_folder
from weft_data.options import Layout, Options
from weft_data.run import Progress, prepare
from weft_data.targets import STATE, Folder, alone

pytestmark = pytest.mark.slow

__all__ = ["api", "api_settings"]  # fixtures
OPTIONS = ("--records", "4", "--processes", "2", "--validation-share", "0.2")
PER_CLASS = 40


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 images that take a while, one of them cut off, in units of 4."""
    folder = tmp_path_factory.mktemp("images") / "in"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            (folder / name / f"{number}.png").write_bytes(picture(number, (400, 300), kind="PNG"))
    broken = folder / "cat" / "7.png"
    broken.write_bytes(broken.read_bytes()[:-300])
    return folder


def start(images: Path, target: str, layout: str, environment: Mapping[str, str] = os.environ) -> subprocess.Popen[str]:
    arguments = ("data", "prepare", "imagefolder", str(images), target, "--layout", layout, *OPTIONS)
    return subprocess.Popen(
        [sys.executable, "-c", "from weft.main import run; run()", *arguments],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return err


def wait_for_marks(states: Path, pattern: str, number: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(list(states.glob(pattern))) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9 of the command; its own children have to notice."""
    process.send_signal(signal.SIGSTOP)  # or it may end while its children are looked for
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, left = psutil.wait_procs(children, timeout=300)
    assert not left


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def undisturbed(images: Path, folder: Path, layout: str) -> dict[str, bytes]:
    prepare(image_folder(images, validation_share=0.2), Folder(folder), Options(Layout(layout), records=4), processes=2)
    return contents(folder)


@pytest.mark.parametrize("layout", ["tfrecords", "imagefolder"])
def test_kill_9_at_random_points(images: Path, tmp_path: Path, layout: str) -> None:
    expected = undisturbed(images, tmp_path / "undisturbed", layout)
    target = tmp_path / "target"
    state = target / STATE
    chance = random.Random(layout)
    for number in (1, 8):  # of 20: however late the kill is, some are left
        process = start(images, str(target), layout)
        wait_for_marks(state, "done/*.json", number, process)
        time.sleep(chance.uniform(0, 0.05))
        kill(process)
        assert not (target / "dataset.json").exists()
        done = {path.name: path.stat() for path in (state / "done").iterdir() if path.suffix == ".json"}
        files = {
            file["name"]: (target / file["name"]).stat()
            for name in done
            for file in json.loads((state / "done" / name).read_bytes())["files"]
        }
        assert all((target / name).read_bytes() == expected[name] for name in files)
    err = finish(start(images, str(target), layout))
    assert f"{len(done)} {'part' if layout == 'imagefolder' else 'shard'}s done before" in err
    assert contents(target) == expected
    for name, before in files.items():  # not written again
        after = (target / name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    corrupt = json.loads(expected["report.json"])["corrupt"]
    assert [image["image"] for image in corrupt] == ["cat/7"]
    # And once more: it is complete, so there is nothing to do.
    before = {name: (target / name).stat().st_mtime_ns for name in expected}
    finish(start(images, str(target), layout))
    assert {name: (target / name).stat().st_mtime_ns for name in expected} == before


@pytest.fixture
def store(api: Api) -> Iterator[tuple[Client, dict[str, str]]]:
    """A client with a data store, and the environment of a command that has the same."""
    person = api.person()
    s3 = api.settings.s3
    with Client(api.url, person.token) as client:
        client.datastores.add(
            "default", endpoint=s3.endpoint, user_name=s3.access_key, password=s3.secret_key.get_secret_value()
        )
        yield client, {**os.environ, "WEFT_URL": api.url, "WEFT_TOKEN": person.token}


def test_kill_9_on_the_way_into_a_data_store(
    images: Path, tmp_path: Path, store: tuple[Client, dict[str, str]]
) -> None:
    client, environment = store
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    expected = undisturbed(images, tmp_path / "undisturbed", "webdataset")
    target = "default:prepared/pets/v1"
    process = start(images, target, "webdataset", environment)
    wait_for_marks(tmp_path / "cache/weft/prepare", "*/done/*.json", 5, process)
    kill(process)
    done = {stored.key: stored.modified for stored in client.data.objects("prepared")}
    assert 5 <= len(done) < len(expected)
    assert "done before" in finish(start(images, target, "webdataset", environment))
    client.data.get(target, tmp_path / "back")
    assert contents(tmp_path / "back") == expected
    assert len(list(client.data.objects("prepared"))) == len(expected)
    assert not list((tmp_path / "cache/weft/prepare").iterdir())
    # A second data set does not go on top of it, also from another machine.
    environment["XDG_CACHE_HOME"] = str(tmp_path / "elsewhere")
    again = start(images, target, "imagefolder", environment)
    _, err = again.communicate(timeout=300)
    assert (again.returncode, "already holds another data set" in err) == (1, True)
    beside = start(images, "default:prepared/pets", "webdataset", environment)
    _, err = beside.communicate(timeout=300)
    assert (beside.returncode, "other files already" in err) == (1, True), err


def test_an_image_folder_in_a_data_store(
    tmp_path: Path, store: tuple[Client, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = store
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = image_folder(class_folders(tmp_path / "in", {"a b": 6, "c": 5}))
    options = Options(Layout.IMAGEFOLDER, records=4)
    prepare(source, StoreTarget(client, Place.parse("default:folders")), options, processes=1)
    prepare(source, Folder(tmp_path / "out"), options, processes=1)
    client.data.get("default:folders", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "out")
    assert (tmp_path / "back/train/a b/0.JPEG").exists()
    # It is complete, so it is only looked at.
    again = prepare(source, StoreTarget(client, Place.parse("default:folders")), options)
    assert again.records == {"train": 9, "validation": 2}


class Stop(Exception):
    """The test's own end of a run."""


def begin(source_folder: Path, target: Path, options: Options) -> None:
    """A run that ends after its first unit."""

    def progress(now: Progress) -> None:
        if now.units:
            raise Stop

    with pytest.raises(Stop):
        prepare(image_folder(source_folder), Folder(target), options, processes=1, progress=progress)


def test_a_target_that_was_begun_otherwise_is_refused_and_says_how(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"a": 6, "b": 6})
    target = tmp_path / "out"
    options = Options(records=2)
    begin(folder, target, options)
    with pytest.raises(DatasetError, match=r"was begun with layout tfrecords \(now webdataset\), seed 0 \(now 3\)"):
        prepare(image_folder(folder), Folder(target), Options(Layout.WEBDATASET, records=2, seed=3))
    (folder / "a" / "more.jpg").write_bytes(picture())
    with pytest.raises(DatasetError, match="from another source, or the source has changed since"):
        prepare(image_folder(folder), Folder(target), options)


def test_what_is_lost_or_damaged_meanwhile_is_made_again(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"a": 6, "b": 6})
    target = tmp_path / "out"
    options = Options(records=2)
    begin(folder, target, options)
    shard = next(target.glob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    prepare(image_folder(folder), Folder(target), options, processes=1)
    other = tmp_path / "other"
    prepare(image_folder(folder), Folder(other), options, processes=1)
    assert contents(target) == contents(other)


def test_other_files_are_never_taken_for_the_data_set(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"a": 4, "b": 4})
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match="holds 1 other file already"):
        prepare(image_folder(folder), Folder(target))
    (target / "notes.txt").unlink()
    begin(folder, target, Options(records=2))
    (target / "train-00000-of-00004-000001.tfrecord").write_bytes(b"")  # as if the source had been another then
    with pytest.raises(DatasetError, match=r"holds 1 file that is not part of this data set, such as train-00000"):
        prepare(image_folder(folder), Folder(target), Options(records=2))
    assert not (target / "dataset.json").exists()


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", {"a": 4})
    target = Folder(tmp_path / "out")
    with alone(target.state), pytest.raises(DatasetError, match="another process is preparing this data set just now"):
        prepare(image_folder(folder), target)
    prepare(image_folder(folder), target)
