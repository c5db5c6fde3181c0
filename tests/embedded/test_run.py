"""Parts of `weft run`: where data and results are, the run's folder, the API that its learners talk to."""

from __future__ import annotations

import csv
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft_core.launch import LearnerSpec
from weft_core.manifest import ManifestError, ParsedManifest, TrainingData, parse_manifest
from weft_core.settings import Settings
from weft_embedded.run import __main__
from weft_embedded.run.data_dir import LinkedData, LocalInput
from weft_embedded.run.folder import choose_folder
from weft_embedded.run.learners import Gang
from weft_embedded.run.memory import Clock
from weft_embedded.run.metrics import MetricsFile
from weft_embedded.run.request import Request, RunError
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import find_secrets, find_stores

AWS = {"AWS_ENDPOINT_URL": "http://s3", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
KEPT = {"id": "s3", "datastore": "kept", "training_data": {"container": "c", "prefix": "p"}}
OPEN = {"id": "own", "connection": {"auth_url": "http://own", "user_name": "me", "password": "pw"}}


def parsed(*stores: dict[str, Any], **fields: Any) -> ParsedManifest:
    manifest = {"name": "a job", "framework": {"name": "python", "command": "true"}, "data_stores": list(stores)}
    return parse_manifest(yaml.safe_dump(manifest | fields), Settings())


def request(folder: Path, **fields: Any) -> Request:
    return Request(manifest="", folder=folder, **fields)


def test_what_needs_a_server_is_left_out_with_a_note(tmp_path: Path) -> None:
    manifest = "name: x\nframework: {name: python, command: 'true'}\nidentity: {audience: sts.example.com}\n"
    _, notes = __main__._parse(Request(manifest=manifest, folder=tmp_path), __main__._settings())
    assert notes == ["identity is left out: nobody issues tokens here, and there is no WEFT_ID_TOKEN_FILE"]


def test_a_sweep_is_refused_and_parameters_have_values(tmp_path: Path) -> None:
    manifest = "name: x\nframework: {name: python, command: 'echo ${sweep.lr}'}\n"
    sweep = f"{manifest}sweep: {{parameters: {{lr: [1]}}, metric: loss}}\n"
    with pytest.raises(ManifestError, match="line 3, sweep: weft run runs one job"):
        __main__._parse(Request(manifest=sweep, folder=tmp_path), __main__._settings())
    asked = Request(manifest=manifest, folder=tmp_path, overrides={"parameters.lr": "0.5"})
    found, _ = __main__._parse(asked, __main__._settings())
    assert found.manifest.command == "echo 0.5"


# --- data and results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "fields", "message"),
    [
        (KEPT, {}, "give a folder instead with --data s3=FOLDER"),
        (KEPT, {"secrets": {"kept": None}}, "AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (KEPT, {"secrets": {"kept": "word"}}, "expected the connection of a data store"),
        (KEPT, {"data": {"s3": "nowhere"}}, "there is no folder nowhere"),
        (KEPT, {"data": {"other": "."}}, "with training_data has this id: s3"),
        (OPEN, {"data": {"": "."}}, "the manifest has no training_data"),
        (OPEN, {"pretrained": "."}, "the manifest has no pretrained_model"),
        (OPEN | {"model": "resnet@3"}, {}, "--pretrained FOLDER"),
    ],
)
def test_what_is_missing_is_named_with_its_option(
    tmp_path: Path, store: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        find_stores(request(tmp_path, **fields), parsed(store), {})


def test_a_kept_store_by_the_environment_or_its_value(tmp_path: Path) -> None:
    of_environment = find_stores(request(tmp_path, secrets={"kept": None}), parsed(KEPT), AWS).inputs[0].location
    assert (of_environment.endpoint, of_environment.access_key, of_environment.container) == ("http://s3", "me", "c")
    value = json.dumps({"endpoint": "http://s3/", "user_name": "me", "password": "s3cr3t", "region": "eu"})
    of_value = find_stores(request(tmp_path, secrets={"kept": value}), parsed(KEPT), {}).inputs[0].location
    assert (of_value.endpoint, of_value.region, of_value.prefix) == ("http://s3", "eu", "p")


def test_results_go_where_the_manifest_says_unless_a_folder_is_named_or_the_store_is_a_servers(tmp_path: Path) -> None:
    results = {"training_results": {"container": "r"}}
    own = find_stores(request(tmp_path), parsed(OPEN | results), {})
    assert own.results is not None
    assert (own.results.endpoint, own.results.container) == ("http://own", "r")
    assert find_stores(request(tmp_path, results=tmp_path), parsed(OPEN | results), {}).results is None
    kept = find_stores(request(tmp_path), parsed({"id": "s3", "datastore": "kept", **results}), {})
    assert kept.results is None
    assert kept.notes == ["results stay here, in the run's folder: data store 'kept' is a server's"]


def test_secrets_are_asked_for_by_name(tmp_path: Path) -> None:
    wanted = parsed(secrets={"KEY": "api-key"})
    with pytest.raises(RunError, match=r"--secret api-key \(from the environment variable API_KEY\)"):
        find_secrets(request(tmp_path), wanted)
    with pytest.raises(RunError, match="not set"):
        find_secrets(request(tmp_path, secrets={"api-key": None}), wanted)
    assert find_secrets(request(tmp_path, secrets={"api-key": "v"}), wanted) == {"KEY": "v"}


def local(name: str, folder: Path, **how: Any) -> LocalInput:
    return LocalInput(name, folder, TrainingData(container="c", **how))


def url_of(store: str, key: str) -> str:
    return f"{store}/{key}"


def test_folders_side_by_side_in_data_dir(tmp_path: Path) -> None:
    first, second, work = tmp_path / "one", tmp_path / "two", tmp_path / "work"
    for folder in (first / "deep", second / "deep", work):
        folder.mkdir(parents=True)
    (first / "deep/a").write_text("1")
    (second / "deep/b").write_text("2")
    assert LinkedData([local("one", first), local("two", second)], True, 1).place(work, 0, url_of) == {}
    assert {path.name: path.read_text() for path in (work / "data/deep").iterdir()} == {"a": "1", "b": "2"}
    (second / "deep/a").write_text("again")
    with pytest.raises(RunError, match="'one' and 'two' both have 'deep/a'"):
        LinkedData([local("one", first), local("two", second)], True, 1)


def test_patterns_and_shares_are_the_agents(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.tar", "b.tar", "c.tar", "d.txt"):
        (folder / name).write_text(name)
    data = LinkedData([local("s", folder, include=["*.tar"], shard="learner")], True, 2)
    for rank, expected in enumerate((["a.tar", "c.tar"], ["b.tar"])):
        work = tmp_path / f"work-{rank}"
        data.place(work, rank, url_of)
        assert sorted(path.name for path in (work / "data").iterdir()) == expected
    with pytest.raises(RunError, match="leaves none of 4 objects"):
        LinkedData([local("s", folder, include=["*.jpg"])], True, 1)


# --- the run's folder -------------------------------------------------------------------------------------------------


def test_each_run_has_a_folder_of_its_own_and_resume_takes_the_last(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="could be resumed"):
        choose_folder(request(tmp_path, resume=True), "a job")
    ids = []
    for expected in ("a-job", "a-job-2"):
        out = choose_folder(request(tmp_path), "a job")
        assert out.path == tmp_path / expected
        with out.taken():
            out.begin(1)
            with pytest.raises(RunError, match="another run is at work"), choose_again(tmp_path, out.path).taken():
                pass
        assert sorted(path.name for path in out.path.iterdir()) == ["run.json"], "empty folders go"
        ids.append(out.id)
    resumed = choose_folder(request(tmp_path, resume=True), "a job")
    assert (resumed.path.name, resumed.id, resumed.attempts) == ("a-job-2", ids[1], 1)
    with pytest.raises(RunError, match="holds an earlier run"):
        choose_folder(request(tmp_path, out=tmp_path / "a-job"), "a job")


def choose_again(tmp_path: Path, path: Path) -> Any:
    return choose_folder(request(tmp_path, out=path, resume=True), "a job")


# --- the learner's API ------------------------------------------------------------------------------------------------


class Learners:
    """Two learners' server, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.changes = 0
        spec = LearnerSpec(
            job_id="run-1", job_name="a", attempt=1, rank=0, learners=2, cpus=1, gpus=0, command="true",
            framework="python", launcher="none", env={},
        )  # fmt: skip
        self.metrics = MetricsFile(folder / "metrics.csv")
        self.gang = Gang(
            spec, lambda what, /, **f: self.told.append((what, f)), lambda rank: {}, self._count, self.metrics, Clock()
        )
        self.folder = folder
        spaces = {"results": folder / "results", "checkpoints": folder / "checkpoints"}
        for path in (*spaces.values(), folder / "incoming"):
            path.mkdir()
        (folder / "data").mkdir()
        (folder / "data/ü 1.tar").write_bytes(b"0123456789")
        self.server = LearnerServer(spaces, folder / "incoming", None, {"images": folder / "data"})
        self.server.serve(self.gang, "secret")

    def _count(self) -> None:
        self.changes += 1

    def call(self, operation: str, rank: int = 0, token: str = "secret", instance: str = "i", **fields: Any) -> Any:
        body = json.dumps({"rank": rank, "instance": f"{instance}{rank}", **fields}).encode()
        return self.http("POST", f"{self.server.url}/api/v1/learner/{operation}", body, token)

    def http(self, method: str, url: str, body: bytes | None = None, token: str = "") -> Any:
        asked = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"}, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            data = answer.read()
        return json.loads(data) if data[:1] == b"{" else data


@pytest.fixture
def learners(tmp_path: Path) -> Iterator[Learners]:
    made = Learners(tmp_path)
    with made.server.serving():
        yield made


def status(work: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as error:
        work()
    with error.value:
        return error.value.code


def test_one_agent_for_each_rank_and_none_without_the_token(learners: Learners) -> None:
    assert status(lambda: learners.call("start", token="guess")) == 410
    assert learners.call("start", 1)["rank"] == 1
    assert learners.call("start", 1)["rank"] == 1, "the same agent may ask again"
    assert status(lambda: learners.call("start", 1, instance="other")) == 409
    assert status(lambda: learners.call("heartbeat", 0)) == 410, "not granted yet"
    assert status(lambda: learners.call("start", 2)) == 400
    assert status(lambda: learners.call("phase", 1, phase="NONSENSE")) == 400
    assert status(lambda: learners.call("nonsense", 1)) == 404
    learners.gang.stop(5)
    assert learners.call("heartbeat", 1) == {"stop": True, "grace_seconds": 5, "dump": None}
    assert status(lambda: learners.call("start", 0)) == 410, "nothing starts any more"


def test_lines_come_once_and_rank_0_stores_last(learners: Learners) -> None:
    for rank in (0, 1):
        learners.call("start", rank)
        learners.call("phase", rank, phase="PROCESSING")
        for _ in range(2):
            learners.call("logs", rank, sequence=0, lines=[{"t": 1, "s": f"of {rank}"}])
    assert [fields["text"] for what, fields in learners.told if what == "line"] == ["of 0", "of 1"]
    assert learners.call("storing", 1, exit_code=0) == {"granted": False, "wait": True}
    assert learners.call("storing", 0, exit_code=0) == {"granted": False, "wait": True}
    assert learners.call("storing", 1, exit_code=0) == {"granted": True, "wait": False}
    learners.call("exit", 1, exit_code=0)
    assert learners.call("storing", 0, exit_code=0) == {"granted": True, "wait": False}
    learners.call("exit", 0, exit_code=0)
    assert [(learner.phase, learner.exit_code) for learner in learners.gang.snapshot()] == [("EXITED", 0)] * 2
    assert learners.changes >= 8, "each step of a learner is news"


def test_files_in_the_jobs_folder_are_told(learners: Learners) -> None:
    learners.call("start", 1)
    part = {"files": 1, "bytes": 5, "listed": [{"path": "model.pt", "files": 1, "bytes": 5}]}
    nothing = {"files": 0, "bytes": 0, "listed": []}
    told = {"place": "learner-2/workdir/", "line": "", "named": nothing, "kept": part, "lost": []}
    learners.call("exit", 1, exit_code=0, leftovers=told)
    [(what, fields)] = learners.told
    assert (what, fields["kind"]) == ("event", "learner")
    assert fields["message"].endswith(
        "(5 bytes: model.pt 5 bytes) that the program left in its folder, below learner-2/workdir/"
    )


def test_metrics_come_once_and_nothing_in_them_breaks_file_or_terminal(learners: Learners) -> None:
    learners.call("start", 0)
    first = [
        {"t": 1000, "group": "train", "etimes": {"iteration": 10}, "values": {"loss": 2, "note": "a text"}},
        {"t": 2000, "group": "train", "etimes": {"iteration": "20"}, "values": {"loss": "nan"}},
        {"t": 3000, "kind": "system", "values": {"cpu_percent": 1.0}},
    ]
    second = [
        {"t": 4000, "group": "train", "etimes": {"iteration": "x"}, "values": {"loss": 0.5}},
        {"t": 5000, "etimes": {}, "values": {'\x1b[2J, "x"\n': -1.5}},
    ]
    for sequence, records in enumerate([first, second]):
        for _ in range(2):
            learners.call("metrics", 0, sequence=sequence, records=records)
    with learners.metrics.path.open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [
        ("train/loss", "train", "user", "1", "1", "10", "1970-01-01T00:00:01.000Z", "2.0"),
        ("train/loss", "train", "user", "1", "1", "20", "1970-01-01T00:00:02.000Z", "nan"),
        ("train/loss", "train", "user", "1", "1", "21", "1970-01-01T00:00:04.000Z", "0.5"),
        ('\ufffd[2J, "x"\ufffd', "", "user", "1", "1", "0", "1970-01-01T00:00:05.000Z", "-1.5"),
    ]
    loss, _ = learners.metrics.series
    told = {name: loss[name] for name in ("name", "points", "last_step", "last", "min", "max")}
    assert told == {"name": "train/loss", "points": 3, "last_step": 21, "last": 0.5, "min": 0.5, "max": 2.0}


def test_files_go_nowhere_but_into_their_folders(learners: Learners, tmp_path: Path) -> None:
    learners.call("start")
    url = learners.call("objects", space="results", op="put", keys=["deep/model ü.pt"])["urls"]["deep/model ü.pt"]
    learners.http("PUT", url, b"weights")
    assert (tmp_path / "results/deep/model ü.pt").read_bytes() == b"weights"
    listed = learners.call("objects", space="results", op="list", keys=["deep/"])["objects"]
    assert listed == [{"key": "deep/model ü.pt", "size": 7}]
    assert learners.http("GET", url) == b"weights"
    for key in ("../out", "/etc/passwd", "a/../../b", "", "a\\b"):
        assert status(lambda key=key: learners.call("objects", space="results", op="put", keys=[key])) == 400
    signature = url.split("/")[3]
    assert status(lambda: learners.http("PUT", f"{learners.server.url}/{signature}/results/..%2fout", b"x")) == 403
    assert status(lambda: learners.http("PUT", f"{learners.server.url}/guess/results/out", b"x")) == 403
    assert status(lambda: learners.http("GET", f"{learners.server.url}/guess/code.zip")) == 404
    learners.call("objects", space="results", op="delete", keys=["deep/model ü.pt"])
    assert status(lambda: learners.http("GET", url)) == 404
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "incoming").iterdir()) == []


def test_streams_are_read_by_url_in_ranges_and_never_written(learners: Learners, tmp_path: Path) -> None:
    data = LinkedData([local("images", tmp_path / "data", mode="stream")], True, 1)
    where = data.place(tmp_path / "work", 0, learners.server.data_url)["WEFT_STREAM_DIR"]
    [line] = [json.loads(text) for text in Path(where, "images.jsonl").read_text().splitlines()]
    assert (line["key"], line["size"]) == ("ü 1.tar", 10)
    assert learners.http("GET", line["url"]) == b"0123456789"
    for asked, expected in (("bytes=3-", b"3456789"), ("bytes=3-4", b"34"), ("bytes=8-99", b"89")):
        request = urllib.request.Request(line["url"], headers={"Range": asked})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert (answer.status, answer.read()) == (206, expected)
    assert (
        status(lambda: urllib.request.urlopen(urllib.request.Request(line["url"], headers={"Range": "bytes=10-"})))
        == 416
    )
    assert status(lambda: learners.http("PUT", line["url"], b"x")) == 403
    assert not (tmp_path / "work/data").exists()
