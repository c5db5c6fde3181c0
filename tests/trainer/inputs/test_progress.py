"""What the log says of a download that takes long, from a real S3 behind a slow way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import Bucket, Proxied, StartApi
from tests.trainer.faulty_s3 import Fault
from tests.trainer.inputs.test_downloads import data, folders

from weft_trainer.inputs import progress
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.inputs.progress import Progress, amount
from weft_trainer.spec import parse_spec

_LINE = re.compile(
    r"data: ([\d.]+) of 3\.1 MiB, (\d+) of 4 objects, [\d.]+ (?:B|KiB|MiB|GiB)/s(?:, [\d.]+ (?:s|min|h) left)?"
)


def run(folder: Path, cache: NodeCache, **inputs: object) -> list[str]:
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
    # However long this one takes here: it is quick.
    monkeypatch.setattr(progress, "FIRST", 3600.0)
    assert run(tmp_path / "first", cache, data=[slow[0] | {"include": ["there"]}]) == []

    monkeypatch.setattr(progress, "FIRST", 0.2)
    monkeypatch.setattr(progress, "PAUSE", 0.2)
    said = run(tmp_path / "second", cache, data=slow)
    *lines, last = said
    assert len(lines) >= 3, said
    matches = [_LINE.fullmatch(line) for line in lines if "listed" not in line]
    assert all(matches), said
    came = [float(one[1]) for one in matches if one]
    assert came == sorted(came)
    assert len(set(came)) > 2, "it is seen growing"
    assert re.fullmatch(
        r"data: all here: 3\.1 MiB, 4 objects in \d+ s, \S+ [KM]iB/s; 1 of them from the node's cache", last
    )

    base = slow[0]["location"] | {"prefix": "slow/0"}
    *_, last = run(tmp_path / "fourth", NodeCache(tmp_path / "empty"), pretrained=base)
    assert last.startswith("pretrained model: all here: 1.0 MiB, 1 object in ")


def test_the_words() -> None:
    said: list[str] = []
    one = Progress("data", said.append)
    one.listed(12_000)
    assert one._so_far(one._begun + 5) == "data: 12,000 objects listed so far"
    one.expect(20_000, 4 << 30)
    one.cached(1_000, 1 << 30)
    one.came(1 << 30)
    one.brought(2_100)
    assert one._so_far(one._begun + 8) == "data: 2.0 of 4.0 GiB, 3,100 of 20,000 objects, 128 MiB/s, 16 s left"
    assert one._so_far(one._begun + 18) == "data: 2.0 of 4.0 GiB, 3,100 of 20,000 objects, 0 B/s"
    one.came(2 << 30)
    one.brought(16_900)
    assert (
        one._in_all(one._begun + 240)
        == "data: all here: 4.0 GiB, 20,000 objects in 4 min, 12.8 MiB/s; 1,000 of them from the node's cache"
    )
    assert [amount(size) for size in (0, 1000, 1024, 150 << 20, 3 << 40)] == [
        "0 B", "1,000 B", "1.0 KiB", "150 MiB", "3.0 TiB",
    ]  # fmt: skip


def test_it_is_in_the_jobs_log(start_api: StartApi, launch: Launch, bucket: Bucket, proxied: Proxied) -> None:
    bucket.put("long/object", bytes(5 << 20))  # 80 pieces, so 8 s at least
    slow = data(bucket, "long", endpoint=proxied(lambda request: Fault(pause=0.1)).url)
    api = start_api("echo trains", data=slow)
    agent = launch(api)
    assert agent.wait(120) == 0, agent.log.read_text()
    first, *_, last, own = api.learners[0].lines
    assert re.fullmatch(r"data: [\d.]+ of 5\.0 MiB, 0 of 1 objects, [\d.]+ \S+/s.*", first)
    assert re.fullmatch(r"data: all here: 5\.0 MiB, 1 object in \d+ s, .*/s", last)
    assert own == "trains"
