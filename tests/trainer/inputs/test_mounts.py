"""FfDL's mount_volume: a folder of this machine, as a job's data and for its results."""

from __future__ import annotations

from pathlib import Path

from tests.trainer.agents import Launch
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi


def test_a_folder_of_this_machine(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "mount" / "digits"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "one").write_text("1\n")
    (folder / "labels").write_text("one\n")
    out = tmp_path / "mount" / "out" / "job-1"
    out.mkdir(parents=True)
    (out / "model.pt").write_text("of an earlier attempt")
    api = start_api(
        "cat $DATA_DIR/labels $DATA_DIR/train/one; echo weights > $RESULT_DIR/model.pt",
        mounts=[{"id": "d", "path": str(folder)}],
        results_folder=str(out),
    )
    assert launch(api).wait() == 0
    assert api.learners[0].printed == ["one", "1"]
    assert (out / "model.pt").read_text() == "weights\n"
    assert (out / "learner-1" / "training-log.txt").read_text() == "one\n1\n"
    assert api.objects["results/model.pt"] == b"weights\n", "they are in the store as well"
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["model.pt", "training-log.txt"]


def _reason(api: ApiDouble) -> str:
    assert api.learners[0].exit is not None
    return str(api.learners[0].exit["reason"])


def test_a_folder_that_is_not_there(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    api = start_api("echo ran", mounts=[{"id": "d", "path": str(tmp_path / "nowhere")}])
    assert launch(api).wait() != 0
    reason = _reason(api)
    assert f"data store 'd': {tmp_path}/nowhere on this machine: No such file or directory" in reason
    assert "ran" not in api.learners[0].lines


def test_two_folders_with_the_same_name_in_them(start_api: StartApi, launch: Launch, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train").touch()
    mounts = [{"id": name, "path": str(tmp_path / name)} for name in ("a", "b")]
    api = start_api("echo ran", mounts=mounts)
    assert launch(api).wait() != 0
    assert "data store 'b' and another one both have 'train'" in _reason(api)
