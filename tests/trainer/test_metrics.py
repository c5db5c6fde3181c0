"""Metrics from every source in a learner reach the API: real agents and programs against the API's double."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import Refused
from tests.trainer.conftest import StartApi

from weft_trainer import log_metrics
from weft_trainer.metrics.limiter import Limiter
from weft_trainer.metrics.records import Record, encode


def python(code: str) -> str:
    return f"python - <<'EOF'\nfrom weft_trainer import log_metrics\n{code}\nEOF\n"


def test_one_line_of_training_code(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        python(
            "for step in range(3): log_metrics(loss=1 / (step + 1), step=step, group='train')\n"
            "log_metrics({'f1.macro': 7, 'lost': float('nan')}, far=float('-inf'), epoch=2)"
        )
    )
    assert launch(api).wait() == 0
    learner = api.learners[0]
    assert learner.points("loss", "train") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    [last] = [one for one in learner.records if "far" in one["values"]]
    assert (last["values"], last["etimes"], last["group"]) == (
        {"f1.macro": 7, "lost": "nan", "far": "-inf"},
        {"epoch": 2},
        "",
    )
    assert all(abs(one["t"] / 1000 - time.time()) < 3600 for one in learner.records)
    assert api.problems == []


def test_metrics_arrive_while_the_program_runs_and_after_it_was_killed(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        python(
            "import os, signal\nlog_metrics(a=1)\n"
            "while not os.path.exists('go'): pass\n"
            "log_metrics(a=2)\nos.kill(os.getpid(), signal.SIGKILL)"
        )
    )
    agent = launch(api)
    api.wait_for(lambda: api.learners[0].points("a") == [(None, 1)])
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() != 0
    assert api.learners[0].points("a") == [(None, 1), (None, 2)]


def test_many_processes_at_once(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        python(
            "import os\nfor name in 'abcd':\n if os.fork() == 0:\n"
            "  for step in range(500): log_metrics({name: step}, step=step)\n"
            "  os._exit(0)\nfor _ in 'abcd': os.wait()"
        )
    )
    assert launch(api).wait() == 0
    for name in "abcd":
        assert api.learners[0].points(name) == [(step, step) for step in range(500)]


def test_an_api_that_is_away_and_answers_that_are_lost(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        python(
            "import os\nlog_metrics(a=0)\nwhile not os.path.exists('away'): pass\n"
            "for n in range(1, 5000): log_metrics(a=n)\n"
            "while not os.path.exists('go'): pass"
        )
    )
    api.lose["metrics"] = 2
    agent = launch(api)
    model = agent.workdir / "model"
    api.wait_for(lambda: api.lose["metrics"] == 0 and len(api.learners[0].points("a")) == 1)
    api.away = True
    (model / "away").touch()
    spool = agent.workdir / "agent" / "metrics"
    wait_until(lambda: any(b'"a": 4999' in one.read_bytes() for one in spool.glob("*.jsonl")))
    api.away = False
    api.lose["metrics"] = 1
    (model / "go").touch()
    assert agent.wait() == 0
    assert [value for _, value in api.learners[0].points("a")] == list(range(5000))
    assert api.problems == []


def test_what_an_agent_that_died_had_not_sent(start_api: StartApi, launch: Launch) -> None:
    api = start_api(python("log_metrics(a=1)\nimport time\ntime.sleep(1000)"))
    api.refuse["metrics"] = Refused(503, "away")
    first = launch(api, folder="same")
    spool = first.workdir / "agent" / "metrics"
    wait_until(lambda: api.calls["start"] > 0 and any(b'"a": 1' in one.read_bytes() for one in spool.glob("*.jsonl")))
    first.kill()
    first.wait()
    api.refuse.clear()
    assert launch(api, folder="same").wait() == 0, "it stands aside"
    assert api.learners[0].points("a") == [(None, 1)]


def test_a_service_that_takes_no_metrics(start_api: StartApi, launch: Launch) -> None:
    api = start_api(python("log_metrics(a=1)\nprint('done')"))
    api.refuse["metrics"] = Refused(404, "not_found")
    assert launch(api).wait() == 0
    assert api.learners[0].lines == ["done"]


def test_a_flood_is_thinned_and_keeps_its_last_values() -> None:
    now = 0.0
    said: list[str] = []
    limiter = Limiter(said.append, lambda: now, total=2_000, burst=100, rate=10)
    flood = [Record(step, {"a": step}, etimes={"iteration": step}) for step in range(1_000)]
    assert limiter.admit(flood) == flood[:100]
    assert limiter.admit([Record(0, {"cpu_percent": 1}, kind="system")]), "the machine's are no part of it"
    assert (limiter.room, len(said)) == (0, 1)
    now = 1.0
    assert limiter.admit([Record(5, {"b": 1})]) == [Record(5, {"b": 1})]
    assert limiter.finish() == [flood[-1]]
    assert "900 points were left out in all" in said[-1]


def test_after_a_million_points_only_the_last() -> None:
    said: list[str] = []
    limiter = Limiter(said.append, lambda: 0.0, total=10, burst=100, rate=10)
    points = [Record(step, {"a": step}) for step in range(50)]
    assert limiter.admit(points[:30]) == points[:10]
    assert limiter.admit(points[30:]) == []
    assert limiter.finish() == [points[-1]]
    assert len(said) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"a\0b": 1},
        {"\ud800": "\udfff\0"},
        {"x" * 5000: "y" * 9000},
        {f"n{i}": "z" * 4000 for i in range(100)},
        {"big": 10**400},
    ],
)
def test_whatever_a_program_says_the_api_can_read(values: dict[str, float | str]) -> None:
    lines = list(encode(Record(1, values, group="\udfff" * 300)))
    assert all(len(line) < 64 * 1024 for line in lines)
    read = [json.loads(line.decode()) for line in lines]
    assert sum(len(one["values"]) for one in read) == len(values)
    assert "\\u0000" not in b"".join(lines).decode()
    for one in read:
        json.dumps(one, ensure_ascii=False).encode()


def test_log_metrics_outside_of_a_learner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEFT_METRICS_FILE", raising=False)
    log_metrics(loss=1)
    with pytest.raises(TypeError, match=r"loss is no number but of type list: \[1, 2\]"):
        log_metrics(loss=[1, 2])
    monkeypatch.setenv("WEFT_METRICS_FILE", str(tmp_path / "no" / "such"))
    log_metrics(loss=1)  # no training ends for that


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        signal.sigtimedwait([], 0.02)
    raise AssertionError("not within 40 s")
