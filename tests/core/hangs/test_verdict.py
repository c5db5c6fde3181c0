"""Verdicts on hangs. The recorded reports are of processes that hung: tests/trainer/program/test_hangs,
test_horovod_hangs and record_tensorflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_core.hangs.report import Collective, Frame, Process, Report, Thread
from weft_core.hangs.stillness import hangs
from weft_core.hangs.verdict import Verdict, judge

FOLDER = Path(__file__).parent
RECORDED: dict[str, dict[str, Any]] = json.loads((FOLDER / "recorded.json").read_text())
VERDICTS: dict[str, str] = json.loads((FOLDER / "verdicts.json").read_text())
HOROVOD: dict[str, dict[str, Any]] = json.loads((FOLDER / "recorded_horovod.json").read_text())
HOROVOD_VERDICTS: dict[str, str] = json.loads((FOLDER / "verdicts_horovod.json").read_text())
TENSORFLOW: dict[str, dict[str, Any]] = json.loads((FOLDER / "recorded_tensorflow.json").read_text())
TENSORFLOW_VERDICTS: dict[str, str] = json.loads((FOLDER / "verdicts_tensorflow.json").read_text())


def recorded(name: str, gangs: dict[str, dict[str, Any]] = RECORDED) -> dict[int, Report | None]:
    return {int(rank): Report.model_validate(report) for rank, report in gangs[name].items()}


def report(*frames: tuple[str, str, int, bool], **process: Any) -> Report:
    """One process with these calls, the innermost first."""
    listed = [dict(zip(("function", "file", "line", "own"), frame, strict=True)) for frame in frames]
    threads = [{"name": "MainThread", "frames": listed}] if listed else []
    return Report.model_validate({"processes": [{"pid": 7, "threads": threads, **process}]})


def verdict(reports: dict[int, Report | None], ended: dict[int, str] | None = None) -> Verdict:
    found = judge(reports, ended or {})
    assert found is not None
    return found


WAIT = report(
    ("all_reduce", "torch/distributed/distributed_c10d.py", 3252, False),
    ("wrapper", "torch/distributed/c10d_logger.py", 83, False),
    ("train", "train.py", 88, True),
)
STEP = report(
    ("quick_execute", "tensorflow/python/eager/execute.py", 54, False),
    ("Model.fit", "keras/src/engine/training.py", 1742, False),
    ("main", "train.py", 30, True),
)
REDUCE = report(
    ("synchronize", "horovod/torch/mpi_ops.py", 1285, False),
    ("allreduce", "horovod/torch/mpi_ops.py", 254, False),
    ("train", "train.py", 30, True),
)
READ = report(("read_a_record", "data.py", 41, True), ("train", "train.py", 80, True))


@pytest.mark.parametrize("name", VERDICTS)
def test_what_was_recorded_of_a_real_hang_shows_its_cause(name: str) -> None:
    found = verdict(recorded(name))
    assert found.text == VERDICTS[name]
    if name not in ("crossed", "shapes"):  # there, two ranks are as good as each other
        assert list(found.blamed) == [1]
    assert 1 not in found.waiting or not found.blamed


@pytest.mark.parametrize("name", HOROVOD_VERDICTS)
def test_looks_at_a_real_hang_of_horovod_prove_it_and_show_its_cause(name: str) -> None:
    gang = recorded(name, HOROVOD)
    assert hangs(gang, {})
    found = verdict(gang)
    assert found.text == HOROVOD_VERDICTS[name]
    if name not in ("names", "operations"):  # there, two ranks are as good as each other
        assert list(found.blamed) == [1]


@pytest.mark.parametrize("name", TENSORFLOW_VERDICTS)
def test_the_stacks_of_a_real_hang_of_tensorflow_show_its_cause(name: str) -> None:
    found = verdict(recorded(name, TENSORFLOW))
    assert found.text == TENSORFLOW_VERDICTS[name]
    assert list(found.blamed) == [1]


@pytest.mark.parametrize("name", HOROVOD_VERDICTS)
def test_a_rank_that_moves_is_no_hang(name: str) -> None:
    """A long evaluation by rank 1, for example."""
    gang = recorded(name, HOROVOD)
    assert gang[1] is not None
    gang[1].processes[-1].still = False
    assert not hangs(gang, {})


def test_the_data_of_the_event_names_every_rank() -> None:
    data = verdict(recorded("asleep")).data
    assert data["collective"] == {"operation": "all_reduce", "number": 4, "group": "0"}
    assert (data["blamed"], data["waiting"]) == ([1], [0, 2])
    assert data["ranks"][1] == {
        "rank": 1,
        "learner": 2,
        "state": "running",
        "in": "wait_for_a_quota",
        "at": "hangs.py:64",
    }


def test_stacks_alone_do_where_there_is_no_flight_recorder() -> None:
    gang: dict[int, Report | None] = {0: WAIT, 1: WAIT, 2: WAIT, 3: READ}
    missing = "rank 3 has not entered all_reduce (train.py:88): "
    assert verdict(gang).text == f"{missing}it is in read_a_record (data.py:41); ranks 0 to 2 wait for it"
    unread = gang | {3: report(state="sleeping")}
    assert verdict(unread).text == f"{missing}it has reported nothing; ranks 0 to 2 wait for it"
    assert verdict(gang | {3: None}).text == verdict(unread).text
    ended = verdict(gang | {3: None}, {3: "exit code 0"})
    assert ended.text == f"{missing}it has ended (exit code 0); ranks 0 to 2 wait for it"
    assert verdict({0: WAIT, 1: WAIT}).text == "all ranks are in all_reduce (train.py:88)"


def test_horovods_stall_inspector_names_the_tensors_and_the_ranks_that_are_missing() -> None:
    def said(first: Report, missing: dict[int, list[str]], *others: Report) -> dict[int, Report | None]:
        return dict(enumerate((first.model_copy(update={"missing": missing}), *others)))

    gradients = ["allreduce.a", "allreduce.b", "allreduce.c"]
    found = verdict(said(REDUCE, {1: gradients}, READ))
    assert found.text == (
        "rank 1 has not entered hvd.allreduce of a, b and 1 more (train.py:30): it is in read_a_record (data.py:41); "
        "rank 0 waits for it"
    )
    assert found.data["collective"] == {"operation": "hvd.allreduce", "tensors": gradients}
    found = verdict(said(STEP, {1: ["HorovodAllreduce_a"]}, STEP))
    assert found.text == (
        "rank 1 has not entered HorovodAllreduce_a (train.py:30): it is in a step of TensorFlow (train.py:30); "
        "rank 0 waits for it"
    )
    found = verdict(said(REDUCE, {0: ["allreduce.b"], 1: ["allreduce.a"], 2: ["allreduce.b"]}, REDUCE, REDUCE))
    assert found.text == (
        "the ranks wait for each other with different tensors: rank 1 has not submitted allreduce.a: it is in "
        "hvd.allreduce (train.py:30); ranks 0 and 2 have not submitted allreduce.b: each is in hvd.allreduce "
        "(train.py:30)"
    )
    assert (found.blamed, found.waiting) == ([1], [0, 2])


def test_what_each_rank_has_submitted_to_horovod_shows_which_tensors_are_missing() -> None:
    def waits(*names: str) -> Report:
        process = REDUCE.processes[0].model_copy(update={"submitted": list(names), "finished": 3})
        return Report(processes=[process])

    silent = READ.processes[0]
    late = Report(processes=[silent.model_copy(update={"submitted": [], "finished": 3})])
    missing = (
        "rank 1 has not entered hvd.allreduce of noname.7 (train.py:30): it is in read_a_record (data.py:41); "
        "rank 0 waits for it"
    )
    assert verdict({0: waits("allreduce.noname.7"), 1: late}).text == missing
    assert verdict({0: waits("allreduce.noname.7"), 1: READ}).text == missing, "it has not entered any"
    both = verdict({0: waits("allreduce.a", "allreduce.b"), 1: waits("allreduce.b")})
    assert (both.blamed, both.waiting) == ([1], [0])
    crossed = verdict({0: waits("allreduce.a"), 1: waits("allreduce.b")})
    assert crossed.text.startswith(
        "the ranks wait for each other with different tensors: rank 0 has not submitted allreduce.b: it is in"
    )
    assert crossed.blamed == []
    unknown = verdict({0: waits("allreduce.a"), 1: REDUCE})
    assert unknown.text == "all ranks are in hvd.allreduce (train.py:30)"


def still(report: Report) -> Report:
    return report.model_copy(update={"processes": [report.processes[0].model_copy(update={"still": True})]})


def test_ranks_of_tensorflow_that_wait_for_each_other_hang_if_horovods_stall_inspector_says_so() -> None:
    step = still(STEP)

    def gang(missing: dict[int, list[str]]) -> dict[int, Report | None]:
        return {0: step.model_copy(update={"missing": missing}), 1: step}

    assert not hangs(gang({}), {}), "their stacks do not show whether they wait"
    assert not hangs(gang({1: ["a"]}), {}), "rank 1 may compute it"
    assert hangs(gang({0: ["b"], 1: ["a"]}), {})


def test_a_rank_that_computes_in_tensorflow_when_the_others_have_ended_does_not_hang() -> None:
    """It may evaluate the model for all of them. Another rank that does nothing, though, is one that it waits for."""
    assert not hangs({0: still(STEP)}, {1: "exit code 0"})
    assert hangs({0: still(STEP), 1: still(report(("read", "train.py", 12, True)))}, {2: "exit code 0"})


def test_of_collectives_that_differ_the_rarer_is_blamed() -> None:
    barrier = report(("barrier", "torch/distributed/distributed_c10d.py", 5000, False), ("save", "train.py", 91, True))
    found = verdict({0: barrier, 1: WAIT, 2: WAIT})
    assert found.text == (
        "the ranks are in different collectives: rank 0 is in barrier (train.py:91), "
        "ranks 1 and 2 are in all_reduce (train.py:88)"
    )
    assert list(found.blamed) == [0]


def test_a_program_without_a_gang_is_where_it_is() -> None:
    assert verdict({0: READ}).text == "the program is in read_a_record (data.py:41)"
    halted = report(("load", "train.py", 3, True), state="stopped")
    assert verdict({0: halted}).text == "the program is stopped by a signal (SIGSTOP)"


def test_several_ranks_of_a_learner() -> None:
    def learner(*reports: tuple[int, Report]) -> Report:
        return Report(
            processes=[report.processes[0].model_copy(update={"rank": rank, "world": 4}) for rank, report in reports]
        )

    gang: dict[int, Report | None] = {0: learner((0, WAIT), (1, READ)), 1: learner((2, WAIT))}
    found = verdict(gang)
    assert found.text == (
        "ranks 1 and 3 have not entered all_reduce (train.py:88): rank 1 is in read_a_record (data.py:41), "
        "rank 3 has ended (its process is gone); ranks 0 and 2 wait for them"
    )
    assert [entry["learner"] for entry in found.data["ranks"]] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "gang", [{}, {0: None, 1: None}, {0: Report()}, {0: report(state="sleeping"), 1: report(state="sleeping")}]
)
def test_where_nothing_is_known_there_is_no_verdict(gang: dict[int, Report | None]) -> None:
    assert judge(gang, {}) is None


def test_a_step_of_tensorflow_waits_only_if_another_rank_is_elsewhere() -> None:
    assert verdict({0: STEP, 1: STEP}).text == "all ranks are in a step of TensorFlow (train.py:30)"
    assert verdict({0: STEP, 1: READ}).text == (
        "rank 1 has not entered a step of TensorFlow (train.py:30): it is in read_a_record (data.py:41); "
        "rank 0 waits for it"
    )


def test_whatever_a_program_calls_itself_can_be_kept() -> None:
    kept = report(("f\0\ud800" + "x" * 500, "a" * 5000, 1, True)).model_dump_json()
    assert "\\u0000" not in kept
    assert len(kept) < 1000


_frames = st.builds(
    Frame,
    function=st.sampled_from(["all_reduce", "train", "step", "wait"]),
    file=st.sampled_from(["torch/distributed/distributed_c10d.py", "train.py", "horovod/torch/mpi_ops.py"]),
    line=st.integers(0, 3),
    own=st.booleans(),
)
_collectives = st.builds(
    Collective,
    group=st.sampled_from(["0", "1"]),
    number=st.integers(0, 4),
    operation=st.sampled_from(["all_reduce", "broadcast"]),
    shapes=st.sampled_from(["", "[2]"]),
    done=st.booleans(),
)
_processes = st.builds(
    Process,
    pid=st.integers(1, 3),
    rank=st.none() | st.integers(0, 5) | st.just(1_000_000),
    world=st.none() | st.integers(0, 6) | st.just(1_000_000),
    state=st.sampled_from(["", "sleeping", "stopped", "disk-sleep"]),
    threads=st.lists(st.builds(Thread, frames=st.lists(_frames, max_size=3)), max_size=2),
    recorded=st.booleans(),
    collectives=st.lists(_collectives, max_size=5),
    submitted=st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=3),
    groups=st.dictionaries(st.sampled_from(["0", "1"]), st.lists(st.integers(0, 6), max_size=4)),
)
_missing = st.dictionaries(st.integers(0, 6), st.lists(st.sampled_from(["a", "b"]), max_size=3))
_reports = st.none() | st.builds(Report, processes=st.lists(_processes, max_size=3), missing=_missing)


@given(
    st.dictionaries(st.integers(0, 3), _reports),
    st.dictionaries(st.integers(0, 3), st.just("exit code 0"), max_size=2),
)
def test_whatever_learners_report_there_is_a_verdict_or_none(
    reports: dict[int, Report | None], ended: dict[int, str]
) -> None:
    found = judge(reports, ended)
    if found is not None:
        assert found.text
        assert len(found.text) < 20_000
        assert set(found.waiting).isdisjoint(found.blamed)
