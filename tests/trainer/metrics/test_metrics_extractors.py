"""FfDL's extractors: regular expressions on the log, files of evaluation metrics; with real agents."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest
from tests.trainer.agents import Launch, words
from tests.trainer.conftest import StartApi

from weft_trainer.metrics.emetrics import parse
from weft_trainer.metrics.regex_worker import Extractor
from weft_trainer.metrics.values import convert

CAFFE = {
    "test": {
        "regex": r"%{GLOG_STAMP:stamp}.*Iteration %{INT:iteration}, Testing net"
        r".*accuracy = %{FLOAT:accuracy}.*loss = %{FLOAT:loss}",
        "meta": {"time": "$stamp"},
        "scalars": {
            "accuracy": {"type": "FLOAT", "value": "$accuracy"},
            "loss": {"type": "FLOAT", "value": "$loss"},
            "set": {"type": "STRING", "value": "held out"},
        },
        "etimes": {"iteration": {"type": "INT", "value": "$iteration"}},
    },
    "train": {
        "regex": r"(?P<head>.*)Iteration %{INT:iteration}, loss = %{FLOAT:loss}$",
        "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
        "etimes": {"iteration": {"type": "INT", "value": "$iteration"}},
    },
}
LOG = """
I1121 10:00:01.250000 12 solver.cpp:218] Iteration 100, loss = 0.5
some noise
I1121 10:00:02.000000 12 solver.cpp:330] Iteration 100, Testing net (#0)
I1121 10:00:03.000000 12 solver.cpp:397]     Test net output #0: accuracy = 0.91
I1121 10:00:03.000001 12 solver.cpp:397]     Test net output #1: loss = 3.1e-1 (* 1 = 0.31 loss)
more noise
I1121 10:00:04.000000 12 solver.cpp:218] Iteration 200, loss = nan
"""


def metrics(groups: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"evaluation_metrics": {"type": "regex_extractor", "line_lookahead": 4, "groups": groups or CAFFE, **more}}


def test_regular_expressions_on_the_log(start_api: StartApi, launch: Launch) -> None:
    file = "mkdir $LOG_DIR/w; echo 'Iteration 7, loss = 7' > $LOG_DIR/w/user_log.txt"
    api = start_api(f"cat <<'EOF'\n{LOG}EOF\n{file}", **metrics())
    agent = launch(api)
    assert agent.wait() == 0
    learner = api.learners[0]
    assert sorted(learner.points("loss", "train"), key=str) == [(100, 0.5), (200, "nan"), (7, 7.0)]
    [test] = [record for record in learner.records if record["group"] == "test"]
    assert test["values"] == {"accuracy": 0.91, "loss": 0.31, "set": "held out"}
    assert test["etimes"] == {"iteration": 100}
    assert test["t"] % 60_000 == 2_000
    assert not any("weft:" in line for line in learner.lines)


def test_an_expression_that_takes_for_ever(start_api: StartApi, launch: Launch) -> None:
    groups = {
        "evil": {"regex": "(a+)+$", "scalars": {"x": {"type": "INT", "value": "1"}}},
        "good": {"regex": "loss %{FLOAT:l}", "scalars": {"l": {"type": "FLOAT", "value": "$l"}}},
    }
    line = "a" * 40 + "!"
    api = start_api(
        f"for i in 1 2 3 4 5 6; do echo {line}; echo loss $i; done; while ! [ -e go ]; do sleep 0.05; done",
        **metrics(groups, line_lookahead=1),
        heartbeat_seconds=0.2,
    )
    agent = launch(api)
    learner = api.learners[0]
    api.wait_for(lambda: any("given up" in text for text in learner.lines) and len(learner.points("l", "good")) >= 6)
    [worker] = [process for process in agent.descendants if "regex_worker" in " ".join(words(process))]
    assert "WEFT_ATTEMPT_TOKEN" not in psutil.Process(worker.pid).environ()
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    assert [value for _, value in learner.points("l", "good")] == [1, 2, 3, 4, 5, 6]
    told = [text for text in learner.lines if text.startswith("weft: ")]
    assert len(told) == 2
    assert "group 'evil' takes too long" in told[0]
    assert not worker.is_running()


def test_the_worker_dies_with_its_agent(start_api: StartApi, launch: Launch) -> None:
    api = start_api("echo begun; sleep 1000", **metrics())
    agent = launch(api)
    api.wait_for(lambda: "begun" in api.learners[0].lines)
    left = agent.descendants
    assert any("regex_worker" in " ".join(words(process)) for process in left)
    agent.kill()
    _, alive = psutil.wait_procs(left, timeout=300)
    assert alive == []


@pytest.mark.parametrize(
    ("regex", "lines", "expected"),
    [
        (r"x=%{INT_ANY:x}", ["x=0x1F"], [31]),
        (r"x=%{INT_ANY:x}", ["x=017"], [17]),
        (r"x=%{HEX:x}", ["x=fF"], [255]),
        (r"x=%{INT:x}", [" x=1", "x=-2"], [-2]),
        (r"a\s+b\s+x=%{INT:x}", ["noise", "a", "b", "x=1", "a", "a", "b", "x=2"], [1, 2]),
        (r"a.*x=%{INT:x}", ["a", "1", "2", "x=3", "x=4"], []),  # four lines are too few for it
        (r"^x=(?P<x>\w+)$", ["x=nothing", "x=5"], [5]),
    ],
)
def test_windows_and_macros(regex: str, lines: list[str], expected: list[int]) -> None:
    extractor = Extractor(3, {"g": {"regex": regex, "scalars": {"x": {"type": "INT", "value": "$x"}}}})
    found = [extractor.feed(1, "", line) for line in lines]
    assert [record["values"]["x"] for record in found if record] == expected


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("2026-01-31T08:15:02.5Z", 1769847302500),
        ("2026-01-31 09:15:02+0100", 1769847302000),
        ("1769847302.25", 1769847302250),
        ("1769847302250", 1769847302250),
        ("yesterday", 42),
    ],
)
def test_a_lines_own_time(stamp: str, time: int) -> None:
    form = {"regex": "(?P<s>.*) x", "meta": {"time": "$s"}, "scalars": {"x": {"type": "INT", "value": "1"}}}
    found = Extractor(1, {"g": form}).feed(42, "", f"{stamp} x")
    assert found is not None
    assert found["time"] == time


def test_files_of_evaluation_metrics(start_api: StartApi, launch: Launch) -> None:
    line = {
        "meta": {"training_id": "x", "time": 1769847309018, "rindex": 1},
        "grouplabel": "test",
        "etimes": {"iteration": {"type": 2, "value": "100"}},
        "values": {
            "accuracy": {"type": 3, "value": 0.91},
            "words": {"type": 0, "value": "so so"},
            "matrix": {"type": 1, "value": "[[1]]"},
            "n": {"type": "INT", "value": "7"},
        },
    }
    api = start_api(
        f"mkdir $LOG_DIR/sub; echo '{json.dumps(line)}' > $LOG_DIR/evaluation-metrics.txt; echo no json >> "
        f"$LOG_DIR/evaluation-metrics.txt; printf '%s' '{json.dumps(line | {'grouplabel': 'torn'})[:-3]}' >> "
        '$LOG_DIR/evaluation-metrics.txt; echo \'{"values": {"plain": 2}}\' > $LOG_DIR/sub/evaluation-metrics.txt;'
        f"mkdir -p m; echo '{json.dumps(line | {'grouplabel': 'named'})}' > m/e.txt",
        evaluation_metrics={"type": "emetrics_file", "in": None, "path": "$MODEL_DIR/m/e.txt"},
    )
    assert launch(api).wait() == 0
    learner = api.learners[0]
    [record] = [candidate for candidate in learner.records if candidate["group"] == "test"]
    assert record == {
        "t": 1769847309018,
        "kind": "user",
        "group": "test",
        "etimes": {"iteration": 100},
        "values": {"accuracy": 0.91, "words": "so so", "matrix": "[[1]]", "n": 7},
        "types": {"words": "STRING", "matrix": "JSONSTRING"},
    }
    assert learner.points("plain") == [(None, 2)]
    assert learner.points("n", "named") == [(100, 7)]
    assert learner.points("n", "torn") == []
    [told] = learner.lines
    assert "a line of evaluation-metrics.txt is no evaluation metrics" in told
    assert told.endswith("no json")


def test_no_other_folder_is_read(start_api: StartApi, launch: Launch) -> None:
    api = start_api("true", evaluation_metrics={"type": "tensorboard", "path": "/etc"})
    assert launch(api).wait() == 0
    [told] = api.learners[0].lines
    assert "evaluation_metrics.in is /etc, which is none of a learner's folders" in told


@pytest.mark.parametrize(
    "line", [b"[]", b"1", b'{"values": []}', b'{"values": {"a": {}}}', b"[" * 5000, b'{"values":{}}']
)
def test_lines_that_are_no_evaluation_metrics(line: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError, RecursionError)):
        parse(line)


def test_values_of_a_type() -> None:
    assert [convert("1e3", "INT"), convert("x", "FLOAT"), convert(3, "STRING"), convert({"a": 1}, "JSONSTRING")] == [
        1000.0,
        None,
        "3",
        '{"a": 1}',
    ]
