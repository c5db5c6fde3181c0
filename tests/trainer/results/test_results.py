"""Results to a real S3: in parts, complete or not there at all for a reader, and nothing abandoned left behind."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import Bucket, StartApi
from tests.trainer.faulty_s3 import Fault, FaultyS3, Request, times

from weft_core.settings import S3Settings
from weft_trainer.errors import DataError, Fenced
from weft_trainer.results.manifest import MANIFEST, Results, results_of
from weft_trainer.spec import S3Location, parse_spec
from weft_trainer.stores.multipart import PART
from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.upload import upload_files


@pytest.fixture
def proxy(s3: S3Settings) -> Iterator[FaultyS3]:
    with FaultyS3(s3.endpoint).serving() as serving:
        yield serving


def put(
    store: S3Store, folder: Path, rank: int = 0, learners: int = 1, attempt: int = 1, complete: bool = True
) -> None:
    made = parse_spec(spec("true", rank=rank, learners=learners, attempt=attempt))
    Results(store, made, lambda: 20.0, lambda: False).put(results_of(folder, folder), complete=complete)


def manifest(bucket: Bucket, prefix: str) -> dict[str, Any] | None:
    there = MANIFEST in bucket.keys(prefix)
    return json.loads(bucket.get(prefix + MANIFEST)) if there else None


def check(bucket: Bucket, prefix: str) -> list[str]:
    """As a reader does: the keys, once all that the manifest lists is there as it says."""
    found = manifest(bucket, prefix)
    assert found is not None
    for file in found["files"]:
        data = bucket.get(prefix + file["key"])
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    assert found["bytes"] == sum(file["size"] for file in found["files"])
    return [file["key"] for file in found["files"]]


def unfinished(bucket: Bucket) -> list[Any]:
    return bucket.client.list_multipart_uploads(Bucket=bucket.location("")["container"]).get("Uploads", [])


def test_large_files_go_in_parts_and_a_part_that_fails_goes_again(
    bucket: Bucket, proxy: FaultyS3, tmp_path: Path
) -> None:
    content = os.urandom(3 * PART + 5)
    (tmp_path / "big").write_bytes(content)
    proxy.rule = times(2, Fault(503), lambda request: "partNumber=2" in request.path)
    put(S3Store(S3Location(**bucket.location("parts", endpoint=proxy.url))), tmp_path)
    assert bucket.get("parts/big") == content
    sent = [request.path.partition("partNumber=")[2][:1] for request in proxy.requests if "partNumber" in request.path]
    assert sorted(sent) == ["1", "2", "2", "2", "3", "4"]
    assert check(bucket, "parts/") == ["big"]


def test_a_lost_answer_to_the_last_request_is_no_failure(bucket: Bucket, proxy: FaultyS3, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(2 * PART))
    proxy.rule = times(1, Fault(lost=True), lambda request: request.method == "POST" and "uploadId" in request.path)
    put(S3Store(S3Location(**bucket.location("lost", endpoint=proxy.url))), tmp_path)
    assert check(bucket, "lost/") == ["big"]


@pytest.mark.parametrize("why", ["store", "fenced"])
def test_what_is_given_up_is_taken_away(bucket: Bucket, proxy: FaultyS3, tmp_path: Path, why: str) -> None:
    (tmp_path / "big").write_bytes(bytes(3 * PART))
    over = threading.Event()

    def rule(request: Request) -> Fault | None:
        if "partNumber=1&" not in request.path:
            return None
        over.set()
        return Fault(503 if why == "store" else 0)

    proxy.rule = rule
    store = S3Store(S3Location(**bucket.location("given-up", endpoint=proxy.url)))
    expected = DataError if why == "store" else Fenced
    with pytest.raises(expected):
        upload_files(store, [("big", tmp_path / "big")], 0.5, lambda: why == "fenced" and over.is_set())
    assert any(request.method == "DELETE" for request in proxy.requests)
    assert not unfinished(bucket)
    assert bucket.keys("given-up/") == []


def test_there_is_a_manifest_when_all_learners_are_done(bucket: Bucket, tmp_path: Path) -> None:
    store = S3Store(S3Location(**bucket.location("gang")))
    for rank in range(4):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / f"of-{rank}").write_bytes(os.urandom(100 + rank))
        (tmp_path / str(rank) / "same").write_bytes(b"from %d" % rank)
    for rank in (2, 0):
        put(store, tmp_path / str(rank), rank, 4)
        assert manifest(bucket, "gang/") is None
    with ThreadPoolExecutor() as pool:  # the last two at the same time
        list(pool.map(lambda rank: put(store, tmp_path / str(rank), rank, 4), (1, 3)))
    assert check(bucket, "gang/") == ["of-0", "of-1", "of-2", "of-3", "same"]
    found = manifest(bucket, "gang/")
    assert found is not None
    assert (found["job"], found["name"], found["attempt"], found["learners"]) == ("job-1", "a job", 1, 4)
    assert bucket.keys("gang/") == ["of-0", "of-1", "of-2", "of-3", "same", MANIFEST]


def test_partial_results_have_none_and_a_later_attempt_takes_the_old_one_away(bucket: Bucket, tmp_path: Path) -> None:
    store = S3Store(S3Location(**bucket.location("attempts")))
    (tmp_path / "model").write_bytes(b"1")
    put(store, tmp_path, complete=False)
    assert manifest(bucket, "attempts/") is None
    put(store, tmp_path)
    assert check(bucket, "attempts/") == ["model"]
    (tmp_path / "model").write_bytes(b"22")
    put(store, tmp_path, rank=0, learners=2, attempt=2)
    assert manifest(bucket, "attempts/") is None, "learner 2 is not done"
    put(store, tmp_path, rank=1, learners=2, attempt=2)
    assert check(bucket, "attempts/") == ["model"]
    found = manifest(bucket, "attempts/")
    assert found is not None
    assert found["attempt"] == 2


def test_results_of_a_gang(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    """The whole agents, in the installation's own store and in a user's."""
    command = "echo $LEARNER_ID > $RESULT_DIR/$LEARNER_ID; head -c 20000000 /dev/zero > $RESULT_DIR/big-$LEARNER_ID"
    for place in (None, bucket.location("out/job-1")):
        api = start_api(command, learners=2, results=place)
        agents = [launch(api, rank, folder=f"{'own' if place is None else 's3'}-{rank}") for rank in range(2)]
        assert [agent.wait() for agent in agents] == [0, 0], [agent.log.read_text() for agent in agents]
        if place is None:
            found = json.loads(api.objects[f"results/{MANIFEST}"])
            assert {f"results/{file['key']}" for file in found["files"]} == set(api.objects) - {
                f"results/{MANIFEST}"
            } - {key for key in api.objects if not key.startswith("results/")}
        else:
            assert len(check(bucket, "out/job-1/")) == 6
