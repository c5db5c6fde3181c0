"""Uploads and downloads over a bad network."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from tests.cli.double import DROP, Answer, Double, Seen, as_json

from weft.client import Client
from weft.errors import NotFound, TransferError, WeftError
from weft.resources.data import Place
from weft.transport.http import new_http_client
from weft.transport.transfer import Part, Parts, download, plan, presigned

NOTHING = [0] * 5
CONTENT = random.Random(2).randbytes(2_000_000)


@pytest.fixture
def http() -> httpx.Client:
    return new_http_client()


class Ranges:
    """An object in a store that knows ranges; the first answers break off after as many bytes as ``cuts`` say."""

    def __init__(self, content: bytes, tag: str = '"v1"', cuts: Sequence[int] = ()) -> None:
        self.content = content
        self.tag = tag
        self.cuts = list(cuts)
        self.starts: list[int] = []

    def __call__(self, seen: Seen) -> Answer:
        wanted = seen.headers.get("range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.starts.append(start)
        cut = self.cuts.pop(0) if self.cuts else None
        headers = {"ETag": self.tag}
        if start >= len(self.content) and wanted:
            return Answer(416, b"", headers)
        return Answer(206 if wanted else 200, self.content[start:], headers, cut=cut)


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def __call__(self, count: int) -> None:
        self.total += count


def fetch(double: Double, http: httpx.Client, target: Path, counter: Counter | None = None) -> None:
    download(
        presigned(http, f"{double.url}/bucket/key?signature=s"),
        target,
        counter or (lambda count: None),
        delays=(0,) * 4,
        sleep=lambda seconds: None,
    )


def test_a_broken_download_goes_on_where_it_broke(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    store = Ranges(CONTENT, cuts=[600_000] * 3)
    double.on("GET", "/bucket/key", store)
    counter = Counter()
    fetch(double, http, tmp_path / "model.zip", counter)
    assert (tmp_path / "model.zip").read_bytes() == CONTENT
    assert store.starts == [0, 600_000, 1_200_000, 1_800_000]
    assert counter.total == len(CONTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["model.zip"]


def test_what_gets_on_is_never_given_up(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    double.on("GET", "/bucket/key", Ranges(CONTENT, cuts=[100_000, 0, 0] * 15))
    fetch(double, http, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_what_can_only_begin_anew_is_given_up(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    double.on("GET", "/bucket/key", Answer(200, CONTENT, cut=1000))
    with pytest.raises(TransferError):
        fetch(double, http, tmp_path / "f")
    assert len(double.seen) == 6


def test_a_later_call_goes_on_too(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    store = Ranges(CONTENT, cuts=[500_000, *NOTHING])
    double.on("GET", "/bucket/key", store)
    target = tmp_path / "model.zip"
    with pytest.raises(TransferError, match="could not be downloaded"):
        fetch(double, http, target)
    assert not target.exists()
    fetch(double, http, target)
    assert target.read_bytes() == CONTENT
    assert store.starts[-1] == 500_000


def test_an_object_that_has_changed_is_fetched_anew(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    target = tmp_path / "model.zip"
    double.on("GET", "/bucket/key", Ranges(CONTENT, cuts=[500_000, *NOTHING]))
    with pytest.raises(TransferError):
        fetch(double, http, target)
    other = bytes(reversed(CONTENT))
    double.on("GET", "/bucket/key", Ranges(other, tag='"v2"'))
    fetch(double, http, target)
    assert target.read_bytes() == other
    assert [path.name for path in tmp_path.iterdir()] == ["model.zip"]


def test_without_a_tag_nothing_is_gone_on_with(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    double.on(
        "GET",
        "/bucket/key",
        Answer(200, CONTENT, cut=1000),
        Answer(206, CONTENT[500:]),
        Answer(200, CONTENT),
    )
    fetch(double, http, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_an_old_file_stays_until_the_new_one_is_whole(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    target = tmp_path / "model.zip"
    target.write_bytes(b"old")
    double.on("GET", "/bucket/key", Ranges(CONTENT, cuts=[1000, *NOTHING]))
    with pytest.raises(TransferError):
        fetch(double, http, target)
    assert target.read_bytes() == b"old"


def test_a_refused_download_is_not_repeated_and_shows_no_signature(
    double: Double, http: httpx.Client, tmp_path: Path
) -> None:
    double.on("GET", "/bucket/key", Answer(403, b"<Error><Message>Request has expired</Message></Error>"))
    with pytest.raises(TransferError, match="Request has expired") as caught:
        fetch(double, http, tmp_path / "f")
    assert "signature" not in str(caught.value)
    assert len(double.seen) == 1


def test_parts_are_repeated_until_all_are_there(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(CONTENT)
    sizes = [700_000, 700_000, 600_000]
    told = [{"number": n, "url": f"{double.url}/part/{n}", "size": size} for n, size in enumerate(sizes, 1)]
    for n in (1, 2, 3):
        stored = Answer(200, b"", {"ETag": f'"tag-{n}"'})
        double.on("PUT", f"/part/{n}", *([Answer(503), DROP, stored] if n == 2 else [stored]))
    counter = Counter()
    tags = Parts(http, sleep=lambda seconds: None).send(source, plan(told), counter)
    assert tags == ['"tag-1"', '"tag-2"', '"tag-3"']
    assert b"".join(double.requests("PUT", f"/part/{n}")[-1].body for n in (1, 2, 3)) == CONTENT
    assert counter.total == len(CONTENT)
    assert all("authorization" not in seen.headers for seen in double.seen)


def test_a_refused_part_ends_the_upload_in_words(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"1234")
    double.on("PUT", "/part/1", Answer(403, b"<Error><Message>Access denied</Message></Error>"))
    parts = [Part(1, f"{double.url}/part/1", 0, 2), Part(2, f"{double.url}/part/2", 2, 2)]
    with pytest.raises(TransferError, match=r"data\.bin was not stored: "):
        Parts(http, sleep=lambda seconds: None).send(source, parts)


def test_a_file_that_shrinks_meanwhile_is_named(double: Double, http: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"12")
    double.on("PUT", "/part/1", Answer(200))
    with pytest.raises(TransferError, match="became shorter"):
        Parts(http).send(source, [Part(1, f"{double.url}/part/1", 0, 4)])


def test_a_store_that_is_away_is_named_without_the_signature(http: httpx.Client, tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"12")
    with pytest.raises(TransferError, match=r"can't reach the store at http://127\.0\.0\.1:9") as caught:
        Parts(http, sleep=lambda seconds: None).send(source, [Part(1, "http://127.0.0.1:9/b/k?signature=s", 0, 2)])
    assert "signature" not in str(caught.value)


def test_a_folder_is_put_and_got(double: Double, client: Client, tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    files = {"a.bin": b"a" * 10, "sub/b.bin": b"b" * 20}
    for name, content in files.items():
        (source / name).write_bytes(content)
    stored: dict[str, bytes] = {}

    def begin(seen: Seen) -> Answer:
        body = seen.json
        url = f"{double.url}/store/{body['key']}"
        double.on("PUT", f"/store/{body['key']}", lambda put: _store(stored, body["key"], put))
        return as_json({"parts": [{"number": 1, "url": url, "size": body["size"]}], "upload_id": None})

    double.on("POST", "datastores/main/uploads", begin)
    sent = client.data.put(source, "main:box/pre/fix")
    assert [item.key for item in sent] == ["pre/fix/a.bin", "pre/fix/sub/b.bin"]
    assert stored == {f"pre/fix/{name}": content for name, content in files.items()}
    first = double.requests("POST", "datastores/main/uploads")[0].json
    assert first == {"container": "box", "key": "pre/fix/a.bin", "size": 10, "create_container": True}

    objects = [{"key": key, "size": len(value), "modified": None} for key, value in stored.items()]
    double.on("GET", "datastores/main/objects", as_json({"objects": objects, "next_cursor": None}))
    double.on(
        "POST", "datastores/main/downloads", lambda seen: as_json({"url": f"{double.url}/store/{seen.json['key']}"})
    )
    for key, value in stored.items():
        double.on("GET", f"/store/{key}", Ranges(value))
    client.data.get("main:box/pre/fix", tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files


def _store(stored: dict[str, bytes], key: str, put: Seen) -> Answer:
    stored[key] = put.body
    return Answer(200, b"", {"ETag": hashlib.md5(put.body).hexdigest()})


def test_a_large_file_is_completed_with_its_tags(double: Double, client: Client, tmp_path: Path) -> None:
    source = tmp_path / "big.bin"
    source.write_bytes(CONTENT)
    half = len(CONTENT) // 2
    parts = [{"number": n, "url": f"{double.url}/part/{n}", "size": half} for n in (1, 2)]
    double.on("POST", "datastores/default/uploads", as_json({"parts": parts, "upload_id": "up-1"}))
    double.on("POST", "datastores/default/uploads:complete", Answer(204))
    for n in (1, 2):
        double.on("PUT", f"/part/{n}", Answer(200, b"", {"ETag": f"t{n}"}))
    client.data.put(source, "box/")
    (completed,) = double.requests("POST", "datastores/default/uploads:complete")
    assert completed.json == {"container": "box", "key": "big.bin", "upload_id": "up-1", "etags": ["t1", "t2"]}


def test_urls_that_have_ended_are_replaced(double: Double, client: Client, tmp_path: Path) -> None:
    source = tmp_path / "big.bin"
    source.write_bytes(CONTENT)
    half = len(CONTENT) // 2

    def begin(seen: Seen) -> Answer:
        number = len(double.requests("POST", "datastores/default/uploads"))
        parts = [{"number": n, "url": f"{double.url}/try/{number}/part/{n}", "size": half} for n in (1, 2)]
        return as_json({"parts": parts, "upload_id": "up-1"})

    double.on("POST", "datastores/default/uploads", begin)
    double.on("POST", "datastores/default/uploads:complete", Answer(204))
    ended = Answer(403, b"<Error><Message>Request has expired</Message></Error>")
    for n in (1, 2):
        double.on("PUT", f"/try/1/part/{n}", ended)
        double.on("PUT", f"/try/2/part/{n}", Answer(200, b"", {"ETag": f"t{n}"}))
    counter = Counter()
    client.data.put(source, "box/", progress=counter)
    first, second = double.requests("POST", "datastores/default/uploads")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"], "or it would be another upload"
    assert b"".join(double.requests("PUT", f"/try/2/part/{n}")[0].body for n in (1, 2)) == CONTENT
    assert counter.total == len(CONTENT)
    # What a new URL does not mend is an error.
    for n in (1, 2):
        double.on("PUT", f"/try/4/part/{n}", ended)
        double.on("PUT", f"/try/3/part/{n}", ended)
    with pytest.raises(TransferError, match="Request has expired"):
        client.data.put(source, "box/")


def test_each_try_of_a_download_has_a_url_of_its_own(double: Double, client: Client, tmp_path: Path) -> None:
    def begin(seen: Seen) -> Answer:
        return as_json({"url": f"{double.url}/try/{len(double.requests('POST', 'datastores/default/downloads'))}"})

    listed = {"objects": [{"key": "a", "size": len(CONTENT), "modified": None}], "next_cursor": None}
    double.on("GET", "datastores/default/objects", as_json(listed))
    double.on("POST", "datastores/default/downloads", begin)
    stored = Ranges(CONTENT, cuts=[700_000])
    for number in (1, 2):
        double.on("GET", f"/try/{number}", stored)
    client.data.get("box/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert stored.starts == [0, 700_000]


@pytest.mark.parametrize("key", ["../evil", "/etc/passwd", "a/../../evil", "a\\..\\evil"])
def test_no_object_leaves_the_target_folder(double: Double, client: Client, tmp_path: Path, key: str) -> None:
    listed = {"objects": [{"key": key, "size": 1, "modified": None}], "next_cursor": None}
    double.on("GET", "datastores/default/objects", as_json(listed))
    with pytest.raises(TransferError, match="leads out of the folder"):
        client.data.get("box", tmp_path)


def test_getting_what_is_not_there(double: Double, client: Client, tmp_path: Path) -> None:
    double.on("GET", "datastores/default/objects", as_json({"objects": [], "next_cursor": None}))
    with pytest.raises(NotFound, match="nothing at default:box/none"):
        client.data.get("box/none", tmp_path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("main:box/a/b", Place("main", "box", "a/b")),
        ("box/a/", Place("default", "box", "a/")),
        ("box", Place("default", "box", "")),
        ("main:", Place("main", "", "")),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert Place.parse(text) == place


@pytest.mark.parametrize("text", ["a b:box", "main:b ox/x", "s3://box/x", ":box", "/box/x"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(WeftError, match="DATASTORE:CONTAINER/PREFIX"):
        Place.parse(text)
