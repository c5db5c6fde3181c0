"""The log's lines about a download that takes long, from a real S3 behind a slow proxy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import Bucket, Proxied, StartApi
from tests.trainer.faulty_s3 import Fault
from tests.trainer.inputs.test_downloads import data, folders

from weft_trainer.inputs import progress
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.inputs.progress import Progress
from weft_trainer.spec import parse_spec

_LINE = re.compile(
    r"data: ([\d.]+) (bytes|KiB|MiB) of 3\.1 MiB, (\d+) of 4 objects, "
    r"[\d.]+ (?:bytes|KiB|MiB|GiB)/s(?:, [\dhms]+ left)?"
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def run(folder: Path, cache: NodeCache, **inputs: Any) -> list[str]:
    said: list[str] = []
    Downloader(cache, print, say=said.append).run(parse_spec(spec("true", **inputs)), folders(folder))
    return said


def test_what_takes_long_is_spoken_of_and_what_is_quick_is_not(
    bucket: Bucket, proxied: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        bucket.put(f"slow/{number}", bytes(1 << 20))
    bucket.put("slow/there", bytes(100_000))
    slow = data(bucket, "slow", endpoint=proxied(lambda request: Fault(pause=0.1)).url)
    cache = NodeCache(tmp_path / "cache")
    # Counts as quick, however long it takes here.
    monkeypatch.setattr(progress, "FIRST", 3600.0)
    assert run(tmp_path / "first", cache, data=[slow[0] | {"include": ["there"]}]) == []

    monkeypatch.setattr(progress, "FIRST", 0.2)
    monkeypatch.setattr(progress, "PAUSE", 0.2)
    said = run(tmp_path / "second", cache, data=slow)
    *lines, last = said
    assert len(lines) >= 3, said
    matches = [_LINE.fullmatch(line) for line in lines if "listed" not in line]
    assert all(matches), said
    came = [float(match[1]) * _UNITS[match[2]] for match in matches if match]
    assert came == sorted(came)
    assert len(set(came)) > 2, "it is seen growing"
    assert re.fullmatch(
        r"data: all here: 3\.1 MiB, 4 objects in [\dms]+, \S+ [KM]iB/s; 1 of them from the node's cache", last
    )

    base = slow[0]["location"] | {"prefix": "slow/0"}
    *_, last = run(tmp_path / "fourth", NodeCache(tmp_path / "empty"), pretrained=base)
    assert last.startswith("pretrained model: all here: 1 MiB, 1 object in ")


def test_the_words() -> None:
    said: list[str] = []
    download = Progress("data", said.append)
    download.listed(12_000)
    assert download._so_far(download._begun + 5) == "data: 12,000 objects listed so far"
    download.expect(20_000, 4 << 30)
    download.cached(1_000, 1 << 30)
    download.came(1 << 30)
    download.brought(2_100)
    assert download._so_far(download._begun + 8) == "data: 2 GiB of 4 GiB, 3,100 of 20,000 objects, 128 MiB/s, 16s left"
    assert download._so_far(download._begun + 18) == "data: 2 GiB of 4 GiB, 3,100 of 20,000 objects, 0 bytes/s"
    download.came(2 << 30)
    download.brought(16_900)
    assert (
        download._in_all(download._begun + 240)
        == "data: all here: 4 GiB, 20,000 objects in 4m, 12.8 MiB/s; 1,000 of them from the node's cache"
    )


def test_it_is_in_the_jobs_log(start_api: StartApi, launch: Launch, bucket: Bucket, proxied: Proxied) -> None:
    bucket.put("long/object", bytes(5 << 20))  # 80 pieces, so 8 s at least
    slow = data(bucket, "long", endpoint=proxied(lambda request: Fault(pause=0.1)).url)
    api = start_api("echo trains", data=slow)
    agent = launch(api)
    assert agent.wait(600) == 0, agent.log.read_text()
    first, *_, last, own = api.learners[0].lines
    assert re.fullmatch(r"data: [\d.]+ \S+ of 5 MiB, 0 of 1 object, [\d.]+ \S+/s.*", first)
    assert re.fullmatch(r"data: all here: 5 MiB, 1 object in [\dms]+, .*/s", last)
    assert own == "trains"
    assert api.learners[0].phases[:3] == ["STARTED", "DOWNLOADING", "PROCESSING"]
