"""The files that a program leaves in the job's folder: which are stored or kept, and the report of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

from weft_trainer.results import leftovers as module
from weft_trainer.results.leftovers import JobFolder, LeftFile, Leftovers, choose, manifest_line
from weft_trainer.spec import LeftoverSpec

KEEP = {"results": [], "keep": True, "bytes": 1 << 20}


class Work:
    """The folders of a learner, with code in the job's."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "model"
        self.folder.mkdir()
        self.write("train.py", b"code")
        self.write("old/data.bin", b"code")
        self.job = JobFolder(self.folder, home)
        self.job.begin()

    def write(self, key: str, data: bytes = b"x", at: float | None = None) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if at is not None:
            os.utime(path, (at, at))

    def left(self, *results: str, taken: tuple[str, ...] = (), prefix: str = "", **spec: Any) -> Leftovers:
        return self.job.leftovers(LeftoverSpec(results, **{"bytes": 1 << 20, **spec}), taken, prefix)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def keys(files: list[LeftFile]) -> list[str]:
    return sorted(file.key for file in files)


def uploads(left: Leftovers) -> list[str]:
    return sorted(key for key, _ in left.uploads)


def test_new_and_changed_files_are_leftovers_and_code_and_bytecode_are_not(work: Work) -> None:
    assert not work.job.has_changed()
    assert work.left().report() is None
    work.write("__pycache__/train.cpython-312.pyc")
    work.write("old/module.pyc")
    assert work.left().report() is None
    assert not work.job.has_changed()
    work.write("out/a/b.txt")
    work.write("old/data.bin", b"CODE", at=1)
    replaced = work.folder / "new"
    replaced.write_bytes(b"code")
    os.replace(replaced, work.folder / "train.py")
    left = work.left()
    assert keys(left.kept) == ["old/data.bin", "out/a/b.txt", "train.py"]
    assert uploads(left) == ["workdir/old/data.bin", "workdir/out/a/b.txt", "workdir/train.py"]
    assert left.line == "results: [old/**, out/**, train.py]"
    assert work.job.has_changed()


def test_results_are_stored_in_their_own_places_whatever_their_size(work: Work) -> None:
    work.write("model.pt", b"m" * 100)
    work.write("out/x/y", b"y" * 100)
    work.write("rest", b"r")
    left = work.left("model.pt", "out/**", "old/*.bin", "none", bytes=10)
    assert uploads(left) == ["model.pt", "old/data.bin", "out/x/y", "workdir/rest"], "changed or not"
    assert left.unmatched == ["none"]
    assert left.line == "results: [model.pt, out/**, old/*.bin, none, rest]"


def test_no_file_takes_anothers_place(work: Work) -> None:
    for key in ("model.pt", "out/x", "a", "learner-2/x", "weft-manifest.json", "fine"):
        work.write(key)
    taken = ("model.pt", "out", "a/b", "workdir/own")
    found = uploads(work.left("**", taken=taken))
    clash = ["a", "learner-2/x", "model.pt", "out/x", "weft-manifest.json"]
    assert found == sorted(["fine", "old/data.bin", "train.py", *(f"workdir_/{key}" for key in clash)])
    assert uploads(work.left("fine", "a", prefix="learner-2/")) == [
        *("learner-2/a", "learner-2/fine"),
        *(f"learner-2/workdir/{key}" for key in ("learner-2/x", "model.pt", "out/x", "weft-manifest.json")),
    ]


def test_links_are_not_followed_out_of_the_folder(work: Work, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "secret").write_text("secret")
    own = work.folder.parent / "data"
    own.mkdir()
    (own / "set").write_text("data")
    work.write("model-2.pt", b"two")
    targets: dict[str, str | Path] = {
        "best.pt": "model-2.pt",
        "stolen": elsewhere / "secret",
        "all": elsewhere,
        "set": own / "set",
        "broken": "nothing",
        "folder": "old",
    }
    for name, target in targets.items():
        (work.folder / name).symlink_to(target)
    os.mkfifo(work.folder / "pipe")
    left = work.left("stolen")
    assert keys(left.kept) == ["best.pt", "model-2.pt"]
    assert {file.key: file.size for file in left.kept} == {"best.pt": 3, "model-2.pt": 3}
    [(reason, lost)] = left.lost.items()
    assert "links out of the folder" in reason
    assert keys(lost) == ["all", "stolen"]


def test_names_that_no_store_takes_are_told(work: Work) -> None:
    work.write("line\nbreak")
    (work.folder / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    work.write("back\\slash")
    work.write("/".join(["long" * 50] * 5))
    left = work.left("*")
    assert left.uploads == [("train.py", work.folder / "train.py"), ("old/data.bin", work.folder / "old/data.bin")]
    [(reason, lost)] = left.lost.items()
    assert "can't be used in a store" in reason
    assert len(lost) == 4
    json.dumps(left.report()).encode()


def test_the_small_and_the_newest_are_kept() -> None:
    def file(key: str, size: int, changed: int) -> LeftFile:
        return LeftFile(key, Path(key), size, changed)

    models = [file(f"model-{number}.pt", 400, number) for number in range(5)]
    small = [file(f"log-{number}", 10, -number) for number in range(60)]
    chosen = choose([*models, *small], 1000)
    assert keys(chosen) == sorted(["model-4.pt", *(f"log-{number}" for number in range(60))])
    assert sum(entry.size for entry in chosen) <= 1000
    assert choose([file("huge", 1001, 0)], 1000) == []
    assert keys(choose(models, 1000)) == ["model-3.pt", "model-4.pt"]


def test_files_that_are_not_kept_are_told_with_the_reason_and_the_line(work: Work) -> None:
    work.write("ckpt/a.bin", b"a" * 60, at=10)
    work.write("ckpt/b.bin", b"b" * 60, at=20)
    left = work.left(bytes=100)
    assert keys(left.kept) == ["ckpt/b.bin"]
    report = left.report()
    assert report is not None
    assert report["kept"] == {"files": 1, "bytes": 60, "listed": [{"path": "ckpt/b.bin", "files": 1, "bytes": 60}]}
    [lost] = report["lost"]
    assert lost["listed"] == [{"path": "ckpt/a.bin", "files": 1, "bytes": 60}]
    assert "100 bytes (limits.leftover_bytes)" in lost["reason"]
    assert report["line"] == "results: [ckpt/**]"
    assert list(work.left(keep=False).lost) == ["keep_leftovers is false"]
    assert "limits.leftover_bytes is 0" in next(iter(work.left(bytes=0).lost))
    failed = work.left("ckpt/a*")
    failed.fail("no store")
    assert failed.uploads == []
    assert keys(next(iter(failed.lost.values()))) == ["ckpt/a.bin", "ckpt/b.bin"]


def test_the_line_of_the_manifest() -> None:
    def line(*names: str, patterns: tuple[str, ...] = ()) -> str:
        return manifest_line(patterns, [LeftFile(name, Path(name), 1, 0) for name in names])

    assert line() == ""
    assert line("runs/a/b", "runs/c", "model.pt", patterns=("out/**",)) == "results: [out/**, model.pt, runs/**]"
    assert line("a.pt", "b.pt", "c.pt", "d.pt") == 'results: ["*.pt"]'
    assert line("a, b", "[x]*", "é") == 'results: ["?x??", "a, b", "é"]'
    assert line(*(f"folder{number}/x" for number in range(40))) == 'results: ["**"]'


def test_a_large_folder_is_quick_and_its_list_short(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ENTRIES", 2_000)
    monkeypatch.setattr(module, "_MOST_KEPT", 100)
    for folder in range(10):
        (work.folder / f"part{folder}").mkdir()
        for number in range(300):
            (work.folder / f"part{folder}" / str(number)).touch()
    work.write("model.pt")
    work.write("deep/down/result.txt")
    before = time.process_time()
    left = work.left()
    assert time.process_time() - before < 2
    assert "model.pt" in keys(left.kept)
    assert len(left.kept) == 100
    report = left.report()
    assert report is not None
    assert len(json.dumps(report)) < 10_000
    assert any("more than 2,000 files" in lost["reason"] for lost in report["lost"])
    assert keys(work.left("result.txt").named) == ["deep/down/result.txt"], (
        "what results names is found among any number"
    )


def test_a_plain_script(start_api: StartApi, launch: Launch) -> None:
    api = start_api("mkdir out; echo m > model.pt; echo x > out/x; echo r > $RESULT_DIR/r", leftovers=KEEP)
    assert launch(api).wait() == 0
    assert {key: api.objects[f"results/workdir/{key}"] for key in ("model.pt", "out/x")} == {
        "model.pt": b"m\n",
        "out/x": b"x\n",
    }
    listed = {entry["key"] for entry in json.loads(api.objects["results/weft-manifest.json"])["files"]}
    assert {"r", "workdir/model.pt", "workdir/out/x"} <= listed
    assert api.learners[0].exit is not None
    told = api.learners[0].exit["leftovers"]
    assert (told["kept"]["files"], told["line"], told["place"]) == (2, "results: [model.pt, out/**]", "workdir/")


def test_several_learners_do_not_overwrite_each_other(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "echo $LEARNER_ID > model.pt; echo $LEARNER_ID > notes", learners=2, leftovers={**KEEP, "results": ["*.pt"]}
    )
    agents = [launch(api, rank) for rank in range(2)]
    assert [agent.wait() for agent in agents] == [0, 0]
    assert {key: data for key, data in api.objects.items() if key.endswith(("model.pt", "notes"))} == {
        "results/model.pt": b"1\n",
        "results/workdir/notes": b"1\n",
        "results/learner-2/model.pt": b"2\n",
        "results/learner-2/workdir/notes": b"2\n",
    }


def test_a_job_that_fails_or_is_stopped_loses_nothing(start_api: StartApi, launch: Launch) -> None:
    failing = start_api("echo half > model.pt; exit 3", leftovers=KEEP)
    stopped = start_api("echo half > model.pt; echo there; sleep 600", leftovers=KEEP)
    agents = launch(failing, folder="a"), launch(stopped, folder="b")
    stopped.wait_for(lambda: "there" in stopped.learners[0].lines)
    agents[1].terminate()
    assert [agent.wait() for agent in agents] == [3, 143]
    for api in (failing, stopped):
        assert api.objects["results/workdir/model.pt"] == b"half\n"
        assert api.learners[0].exit is not None
        assert api.learners[0].exit["leftovers"]["kept"]["files"] == 1


def test_a_service_that_knows_no_leftovers_is_told_of_none(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo m > model.pt")
    assert launch(api).wait() == 0
    assert api.learners[0].exit is not None
    assert "leftovers" not in api.learners[0].exit
    assert not any("model.pt" in key for key in api.objects)


@pytest.mark.parametrize(
    ("env", "expected"),
    [({}, "offline"), ({"WANDB_MODE": "disabled"}, "disabled"), ({"WANDB_API_KEY": "secret"}, "")],
)
def test_weights_and_biases_is_offline_unless_it_is_given_a_key(
    start_api: StartApi, launch: Launch, env: dict[str, str], expected: str
) -> None:
    api = start_api("echo mode=$WANDB_MODE", env=env)
    assert launch(api).wait() == 0
    assert api.learners[0].lines == [f"mode={expected}"]
