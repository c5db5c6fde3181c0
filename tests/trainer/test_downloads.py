"""Code, data and models, from a real S3."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

from tests.trainer.agents import Agent, Launch
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import Bucket, StartApi

_LIST = "cd $DATA_DIR && find . -type f | sort | xargs -r md5sum"


def data(bucket: Bucket, prefix: str, **changes: str) -> list[dict[str, Any]]:
    return [{"id": "cos", "location": bucket.location(prefix, **changes)}]


def reason(api: ApiDouble, agent: Agent) -> str:
    assert agent.wait() == 1
    report = api.learners[0].exit
    assert report is not None
    text: str = report["reason"]
    return text


def test_data_in_parallel_ranges_and_from_the_cache(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    big = os.urandom(40 << 20)
    bucket.put("set/big.bin", big)
    bucket.put("set/sub/small.txt", b"small")
    bucket.put("set/sub/empty", b"")
    bucket.put("set/folder/", b"")
    bucket.put("set-of-others/x", b"not this one")
    api = start_api(_LIST, learners=2, data=data(bucket, "set"))
    agents = [launch(api, rank) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0], [agent.log.read_text() for agent in agents]
    for rank in range(2):
        assert [line.split() for line in api.learners[rank].lines] == [
            [hashlib.md5(big).hexdigest(), "./big.bin"],
            [hashlib.md5(b"").hexdigest(), "./sub/empty"],
            [hashlib.md5(b"small").hexdigest(), "./sub/small.txt"],
        ]
        assert "DOWNLOADING" in api.learners[rank].phases
    messages = sorted(api.learners[rank].messages[0].split(" s")[0].split(" in ")[0] for rank in range(2))
    assert messages == ["3 files (41.9 MB)"] * 2
    cached = [api.learners[rank].messages[0].partition(", ")[2].split(" ")[0] for rank in range(2)]
    assert sum(int(one or 0) for one in cached) == 3, "each object was downloaded once, by whichever learner"

    again = start_api(_LIST, data=data(bucket, "set"))
    assert launch(again, folder="again").wait() == 0
    assert again.learners[0].lines == api.learners[0].lines
    assert again.learners[0].messages[0].endswith("3 of them from the node's cache")


def test_a_cached_file_that_user_code_has_changed_is_not_used(
    start_api: StartApi, launch: Launch, bucket: Bucket
) -> None:
    bucket.put("changed/data", b"right")
    api = start_api("chmod u+w $DATA_DIR/data; printf wrong > $DATA_DIR/data", data=data(bucket, "changed"))
    assert launch(api).wait() == 0
    again = start_api("cat $DATA_DIR/data", data=data(bucket, "changed"))
    assert launch(again, folder="again").wait() == 0
    assert again.learners[0].lines == ["right"]


def test_a_single_object_and_several_stores(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("one/train.csv", b"1")
    bucket.put("two/test.csv", b"2")
    inputs = [*data(bucket, "one/train.csv"), {"id": "other", "location": bucket.location("two")}]
    api = start_api("cd $DATA_DIR; ls", data=inputs)
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["test.csv", "train.csv"]


def test_pretrained_model(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("base/model.bin", b"weights")
    api = start_api("cat $PRETRAINED_DIR/model.bin", pretrained=bucket.location("base"))
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["weights"]


def test_data_that_cannot_be_brought(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("a/train.csv", b"1")
    bucket.put("b/train.csv", b"2")
    bucket.put("c/x", b"1")
    bucket.put("c/x/y", b"2")
    both = [*data(bucket, "a"), {"id": "other", "location": bucket.location("b")}]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": data(bucket, "a", container="no-such-bucket")}, "there is no bucket 'no-such-bucket' at http"),
        ({"data": data(bucket, "a", secret_key="wrong")}, "does not take these credentials (SignatureDoesNotMatch)"),
        ({"data": both}, "data stores 'cos' and 'other' both have 'train.csv'"),
        ({"data": data(bucket, "c")}, "'x' in S3 is both an object and a folder"),
        ({"pretrained": bucket.location("nothing-here")}, "there is no pretrained model at"),
    ]
    for number, (changes, expected) in enumerate(cases):
        api = start_api("echo ran", **changes)
        assert expected in reason(api, launch(api, folder=f"case-{number}"))
        assert api.learners[0].lines == []
        assert api.learners[0].storing == []


def test_no_data_is_a_warning(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    api = start_api("ls $DATA_DIR", data=data(bucket, "nothing-here"))
    agent = launch(api)
    assert agent.wait() == 0
    assert "there is nothing at" in agent.log.read_text()


def code(bucket: Bucket, files: dict[str, bytes | zipfile.ZipInfo]) -> dict[str, Any]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            if isinstance(content, zipfile.ZipInfo):
                archive.writestr(content, b"target")
            else:
                archive.writestr(name, content)
    return upload(bucket, out.getvalue())


def upload(bucket: Bucket, bundle: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(bundle).hexdigest()
    bucket.put(f"code/{digest}.zip", bundle)
    return {"sha256": digest, "size": len(bundle), "url": bucket.url(f"code/{digest}.zip")}


def test_code(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    script = zipfile.ZipInfo("run.sh")
    script.external_attr = (stat.S_IFREG | 0o755) << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("pkg/__init__.py", "name = 'mine'")
        archive.writestr("sub/train.py", "import pkg; print(pkg.name)")
        archive.writestr(script, "#!/bin/sh\npython sub/train.py\n")
    api = start_api("./run.sh", code=upload(bucket, out.getvalue()))
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["mine"]


def test_code_that_is_not_to_be_trusted(start_api: StartApi, launch: Launch, bucket: Bucket, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    good = code(bucket, {"train.py": b"print(1)"})
    cases = [
        (code(bucket, {"../../evil": b"x"}), "'../../evil' is no name for a file"),
        (code(bucket, {"/tmp/evil": b"x"}), "'/tmp/evil' is no name for a file"),
        (code(bucket, {"link": link}), "'link' is neither a file nor a folder"),
        (upload(bucket, b"not a zip"), "can't be unpacked: File is not a zip file"),
        (good | {"sha256": "0" * 64}, "is not what was submitted"),
        (good | {"url": bucket.url("code/gone.zip")}, "can't be downloaded: the store answers 404"),
    ]
    for number, (bundle, expected) in enumerate(cases):
        api = start_api("echo ran", code=bundle)
        assert expected in reason(api, launch(api, folder=f"case-{number}/learner"))
        assert api.learners[0].lines == []
    assert not list(tmp_path.rglob("evil"))


def test_results_in_a_users_store(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    command = "head -c 70000000 /dev/zero > $RESULT_DIR/big; echo m > $RESULT_DIR/model; echo c > $CHECKPOINT_DIR/c"
    api = start_api(
        command, results=bucket.location("out/job-1"), checkpoints=bucket.location("out/_checkpoints/job-1")
    )
    agent = launch(api)
    assert agent.wait() == 0, agent.log.read_text()
    assert bucket.keys("out/job-1/") == ["big", "learner-1/training-log.txt", "model"]
    assert bucket.get("out/job-1/big") == bytes(70_000_000)
    assert len(bucket.keys("out/_checkpoints/job-1/")) == 2
    assert list(api.objects) == ["exit-0/exit.json"]


def test_results_that_cannot_be_stored(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    api = start_api("echo m > $RESULT_DIR/model", results=bucket.location("x", secret_key="wrong"))
    words = reason(api, launch(api))
    assert words.startswith("results can't be stored: ")
    assert "does not take these credentials" in words
