"""Code, data and models, from a real S3."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.trainer.agents import Launch, spec
from tests.trainer.conftest import Bucket, StartApi

from weft_trainer.config import Config
from weft_trainer.errors import DataError
from weft_trainer.folders import Folders
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.spec import parse_spec

_LIST = "cd $DATA_DIR && find . -type f | sort | xargs -r md5sum"


def data(bucket: Bucket, prefix: str, **changes: str) -> list[dict[str, Any]]:
    return [{"id": "cos", "location": bucket.location(prefix, **changes)}]


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
        assert [line.split() for line in api.learners[rank].printed] == [
            [hashlib.md5(big).hexdigest(), "./big.bin"],
            [hashlib.md5(b"").hexdigest(), "./sub/empty"],
            [hashlib.md5(b"small").hexdigest(), "./sub/small.txt"],
        ]
    messages = sorted(api.learners[rank].messages[0].split(" s")[0].split(" in ")[0] for rank in range(2))
    assert messages == ["3 files (40 MiB)"] * 2
    cached = [api.learners[rank].messages[0].partition(", ")[2].split(" ")[0] for rank in range(2)]
    assert sum(int(count or 0) for count in cached) == 3, "each object was downloaded once, by whichever learner"

    again = start_api(_LIST, data=data(bucket, "set"))
    assert launch(again, folder="again").wait() == 0
    assert again.learners[0].printed == api.learners[0].printed
    assert again.learners[0].messages[0].endswith("3 of them from the node's cache")


def test_a_cached_file_that_user_code_has_changed_is_not_used(
    start_api: StartApi, launch: Launch, bucket: Bucket
) -> None:
    bucket.put("changed/data", b"right")
    api = start_api("chmod u+w $DATA_DIR/data; printf wrong > $DATA_DIR/data", data=data(bucket, "changed"))
    assert launch(api).wait() == 0
    again = start_api("cat $DATA_DIR/data", data=data(bucket, "changed"))
    assert launch(again, folder="again").wait() == 0
    assert again.learners[0].printed == ["right"]


def test_a_single_object_and_several_stores(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("one/train.csv", b"1")
    bucket.put("two/test.csv", b"2")
    inputs = [*data(bucket, "one/train.csv"), {"id": "other", "location": bucket.location("two")}]
    api = start_api("cd $DATA_DIR; ls", data=inputs)
    assert launch(api).wait() == 0
    assert api.learners[0].printed == ["test.csv", "train.csv"]


def test_pretrained_model(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    bucket.put("base/model.bin", b"weights")
    api = start_api("cat $PRETRAINED_DIR/model.bin", pretrained=bucket.location("base"))
    assert launch(api).wait() == 0
    assert api.learners[0].printed == ["weights"]


def test_a_model_in_the_hubs_cache_is_found_by_its_name(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    snapshot = "hub/models--team--tiny/snapshots/0a1b/config.json"
    for key in (snapshot, "hub/models--team--tiny/blobs/77de", "hub/models--team--tiny/refs/main"):
        bucket.put(f"of-the-hub/{key}", b"0a1b")
    command = "echo $HF_HUB_OFFLINE; cd $HF_HUB_CACHE; find * -type f | sort"
    api = start_api(command, pretrained=bucket.location("of-the-hub"))
    assert launch(api).wait() == 0
    # S3 has no links: the blobs, which the snapshots' files lead to on the user's machine, would come twice.
    assert api.learners[0].printed == ["1", "models--team--tiny/refs/main", snapshot.removeprefix("hub/")]


def refusal(tmp_path: Path, **changes: Any) -> str:
    """Why these downloads fail, by the part of the agent that does them."""
    parsed = parse_spec(spec("echo ran", **changes))
    with pytest.raises(DataError) as caught:
        Downloader(NodeCache(tmp_path / "cache"), print).run(parsed, folders(tmp_path))
    words: str = caught.value.with_code()
    return words


def folders(tmp_path: Path) -> Folders:
    env = {"WEFT_API_URL": "x", "WEFT_ATTEMPT_TOKEN": "x", "WEFT_RANK": "0", "WEFT_NUM_LEARNERS": "1"}
    config = Config.from_environment({**env, "WEFT_WORKDIR": str(tmp_path / "work")})
    return Folders.create(config, parse_spec(spec("echo ran")))


def test_data_that_cannot_be_brought(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a/train.csv", b"1")
    bucket.put("b/train.csv", b"2")
    bucket.put("c/x", b"1")
    bucket.put("c/x/y", b"2")
    both = [*data(bucket, "a"), {"id": "other", "location": bucket.location("b")}]
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"data": data(bucket, "a", container="no-such-bucket")},
            "S302 data store 'cos': no-such-bucket/a/ can't be listed: there is no bucket 'no-such-bucket' at http",
        ),
        (
            {"data": data(bucket, "a", secret_key="wrong")},
            "does not take these credentials (SignatureDoesNotMatch)",
        ),
        ({"data": both}, "S302 data stores 'cos' and 'other' both have 'train.csv'"),
        ({"data": data(bucket, "c")}, "S302 'x' in S3 is both an object and a folder"),
        ({"pretrained": bucket.location("nothing-here")}, "S301 there is no pretrained model at"),
    ]
    for changes, expected in cases:
        assert expected in refusal(tmp_path, **changes)


def test_a_learner_whose_data_cannot_be_brought(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    api = start_api("echo ran", data=data(bucket, "x", secret_key="wrong"))
    assert launch(api).wait() == 1
    learner = api.learners[0]
    assert learner.exit is not None
    assert learner.exit["reason"].startswith("S302 data store 'cos': ")
    assert (learner.lines, learner.storing) == ([], [])


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
    assert api.learners[0].printed == ["mine"]
    assert api.objects["results/_submitted_code/model.zip"] == out.getvalue(), "where FfDL's users look for it"


def test_code_that_is_not_to_be_trusted(bucket: Bucket, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    good = code(bucket, {"train.py": b"print(1)"})
    cases = [
        (code(bucket, {"../../evil": b"x"}), "C102 '../../evil' is no name for a file"),
        (code(bucket, {"/tmp/evil": b"x"}), "'/tmp/evil' is no name for a file"),
        (code(bucket, {"link": link}), "'link' is neither a file nor a folder"),
        (upload(bucket, b"not a zip"), "C102 the code bundle can't be unpacked: File is not a zip file"),
        (good | {"sha256": "0" * 64}, "is not what was submitted"),
        (good | {"url": bucket.url("code/gone.zip")}, "can't be downloaded: the store answers 404"),
    ]
    for bundle, expected in cases:
        assert expected in refusal(tmp_path, code=bundle)
    assert not list(tmp_path.rglob("evil"))


def test_results_in_a_users_store(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    command = "head -c 70000000 /dev/zero > $RESULT_DIR/big; echo m > $RESULT_DIR/model; echo c > $CHECKPOINT_DIR/c"
    api = start_api(
        command, results=bucket.location("out/job-1"), checkpoints=bucket.location("out/_checkpoints/job-1")
    )
    agent = launch(api)
    assert agent.wait() == 0, agent.log.read_text()
    assert bucket.keys("out/job-1/") == ["big", "learner-1/training-log.txt", "model", "weft-manifest.json"]
    assert bucket.get("out/job-1/big") == bytes(70_000_000)
    assert len(bucket.keys("out/_checkpoints/job-1/")) == 2
    assert list(api.objects) == ["exit-0/exit.json"]


def test_a_results_store_of_a_mistyped_name_shows_before_the_training(
    start_api: StartApi, launch: Launch, bucket: Bucket
) -> None:
    place = bucket.location("x", endpoint="http://store.invalid:9")
    api = start_api("echo trained", results=place)
    assert launch(api).wait() == 1
    learner = api.learners[0]
    assert learner.printed == []
    report = learner.exit
    assert report is not None
    assert report["reason"].startswith("S303 ")
    assert "the name 'store.invalid' can't be resolved" in report["reason"]


def test_results_that_cannot_be_stored(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    api = start_api("echo m > $RESULT_DIR/model", results=bucket.location("x", secret_key="wrong"))
    assert launch(api).wait() == 1
    report = api.learners[0].exit
    assert report is not None
    assert report["reason"].startswith("S303 results can't be stored: ")
    assert "does not take these credentials" in report["reason"]


def test_results_of_a_failed_program_that_cannot_be_stored(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    """The program's failure comes first; FfDL's S304 hid it."""
    api = start_api("echo m > $RESULT_DIR/model; exit 3", results=bucket.location("x", secret_key="wrong"))
    assert launch(api).wait() == 3
    report = api.learners[0].exit
    assert report is not None
    assert report["exit_code"] == 3
    assert not report["reason"].startswith("S30")
    assert "(partial results were not stored: " in report["reason"]
    assert "does not take these credentials" in report["reason"]
