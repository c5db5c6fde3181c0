"""Overlays in a node's cache: unpacked once by many learners, and kept as long as a learner uses them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft_trainer.errors import DataError
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.overlay import Overlay, bring_overlay
from weft_trainer.packages.archive import write_archive
from weft_trainer.spec import BundleInput


class Store:
    """A store for archives, by URL."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.asked = 0

    def put(self, name: str, content: str = "") -> BundleInput:
        source = self.folder / f"{name}-source"
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").write_text(content or f"NAME = {name!r}\n")
        archive = self.folder / f"{name}.zip"
        write_archive(source, archive)
        data = archive.read_bytes()
        return BundleInput(hashlib.sha256(data).hexdigest(), len(data), f"{self.url}/{name}.zip")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / "store"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked += 1
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    made = Store(folder, f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def scratch(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_learners_of_a_node_unpack_it_once(store: Store, tmp_path: Path) -> None:
    bundle = store.put("alpha")

    def learner(number: int) -> Path:
        cache = NodeCache(tmp_path / "cache")
        return bring_overlay(bundle, cache, scratch(tmp_path / f"learner-{number}")).folder

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(learner, range(8)))
    assert len(folders) == 1
    assert (folders.pop() / "alpha" / "__init__.py").read_text() == "NAME = 'alpha'\n"
    assert store.asked == 1


def test_a_learner_that_finds_it_unpacked_and_in_use_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learners find nothing. One of them unpacks it and uses it, before the other has its turn to unpack it."""
    bundle, both, in_use = store.put("alpha"), threading.Barrier(2), threading.Event()
    flock = fcntl.flock

    def in_turn(file: Any, operation: int) -> None:
        if operation == fcntl.LOCK_EX and both.wait(60):
            assert in_use.wait(60)
        flock(file, operation)

    def learner(number: int) -> Overlay:
        overlay = bring_overlay(bundle, NodeCache(tmp_path / "cache"), scratch(tmp_path / f"learner-{number}"))
        in_use.set()
        return overlay

    monkeypatch.setattr("weft_trainer.inputs.overlay.fcntl", SimpleNamespace(**vars(fcntl) | {"flock": in_turn}))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(learner, range(2))
    assert first.folder == second.folder
    assert [bool(first.words), bool(second.words)].count(True) == 1, "it is unpacked once"
    first.release()
    second.release()


def test_what_is_not_what_was_built_is_refused(store: Store, tmp_path: Path) -> None:
    bundle = store.put("alpha")
    other = BundleInput("0" * 64, bundle.size, bundle.url)
    with pytest.raises(DataError, match=r"the archive of the job's packages is not what was submitted"):
        bring_overlay(other, NodeCache(tmp_path / "cache"), scratch(tmp_path / "learner"))
    assert not list((tmp_path / "cache" / "overlays").glob("*/"))


def test_unused_ones_go_after_a_week_and_used_ones_stay(store: Store, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache")
    old, used = store.put("old"), store.put("used")
    gone = bring_overlay(old, cache, scratch(tmp_path / "1"))
    kept = bring_overlay(used, cache, scratch(tmp_path / "2"))
    gone.release()
    weeks_ago = time.time() - 14 * 24 * 3600
    for folder in (gone.folder, kept.folder):
        os.utime(folder.with_name(f"{folder.name}.lock"), (weeks_ago, weeks_ago))
    bring_overlay(store.put("new"), cache, scratch(tmp_path / "3"))
    assert not gone.folder.exists()
    assert kept.folder.exists(), "a learner has it in use"
    kept.release()


def test_the_same_packages_make_the_same_archive(tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        folder = tmp_path / str(number)
        (folder / "package").mkdir(parents=True)
        for name in ("b.py", "a.py")[:: 1 - 2 * number]:
            (folder / "package" / name).write_text(name)
        write_archive(folder, tmp_path / f"{number}.zip")
        digests.add(hashlib.sha256((tmp_path / f"{number}.zip").read_bytes()).hexdigest())
        time.sleep(0.01)
    assert len(digests) == 1
