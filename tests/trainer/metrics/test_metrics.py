"""Metrics from every source in a learner reach the API: real agents and programs against the API's double."""

from __future__ import annotations

import errno
import json
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import Refused
from tests.trainer.conftest import StartApi

from weft_api.metrics.ingest import MOST_VALUES
from weft_trainer import log_metrics
from weft_trainer.control import Control
from weft_trainer.metrics import logged
from weft_trainer.metrics.limiter import Limiter
from weft_trainer.metrics.records import Record, encode
from weft_trainer.metrics.shipper import MetricShipper
from weft_trainer.service.client import ApiClient
from weft_trainer.service.heartbeat import Heartbeat
from weft_trainer.service.mask import Mask
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.spool import METRIC_BATCH_BYTES, Spool
from weft_trainer.service.vitals import Vitals


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
    [last] = [record for record in learner.records if "far" in record["values"]]
    assert (last["values"], last["etimes"], last["group"]) == (
        {"f1.macro": 7, "lost": "nan", "far": "-inf"},
        {"epoch": 2},
        "",
    )
    assert all(abs(record["t"] / 1000 - time.time()) < 3600 for record in learner.records)
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
    wait_until(lambda: any(b'"a": 4999' in file.read_bytes() for file in spool.glob("*.jsonl")))
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
    wait_until(lambda: api.calls["start"] > 0 and any(b'"a": 1' in file.read_bytes() for file in spool.glob("*.jsonl")))
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
    assert sum(len(record["values"]) for record in read) == len(values)
    assert "\\u0000" not in b"".join(lines).decode()
    for record in read:
        json.dumps(record, ensure_ascii=False).encode()


def test_log_metrics_outside_of_a_learner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEFT_METRICS_FILE", raising=False)
    log_metrics(loss=1)
    with pytest.raises(TypeError, match=r"loss is no number but of type list: \[1, 2\]"):
        log_metrics(loss=[1, 2])
    monkeypatch.setenv("WEFT_METRICS_FILE", str(tmp_path / "no" / "such"))
    log_metrics(loss=1)  # no training ends for that


def test_a_program_that_floods_is_told_so_and_never_waits(start_api: StartApi, launch: Launch) -> None:
    """More than there is room for: the first come all, the last value comes, and of the others some."""
    code = (
        "import os, json\nlog_metrics(calm=1, step=0)\n"
        "with open(os.environ['WEFT_METRICS_FILE'], 'ab') as file:\n"
        " for start in range(0, 600000, 1000):\n"
        "  record = [json.dumps({'t': 1, 'v': {'a': n, 'b': n, 'c': n}, 'i': n}) for n in range(start, start + 1000)]\n"
        "  file.write(chr(10).join(record).encode() + b'\\n')\n"
        "log_metrics(a=-1, b=-1, c=-1, step=600000)\nprint('ends')"
    )
    api = start_api(python(code))
    agent = launch(api)
    api.wait_for(lambda: "ends" in api.learners[0].lines)
    assert agent.wait(600) == 0
    learner = api.learners[0]
    points = learner.points("a")
    assert points[:5] == [(step, step) for step in range(5)]
    assert points[-1] == (600000, -1)
    assert 66_000 < len(points) < 200_000
    assert learner.points("calm") == [(0, 1)]
    assert any("weft: metrics come too fast" in line for line in learner.lines)
    assert not list((agent.workdir / "metrics").glob("*.old"))
    assert api.problems == []


def test_the_file_that_is_written_to_is_put_aside_with_no_line_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "_ROTATE", 100)
    monkeypatch.setattr(logged, "_READ", 150)
    path = tmp_path / "logged.jsonl"
    monkeypatch.setenv("WEFT_METRICS_FILE", str(path))
    sink = Sink()
    source = logged.LoggedMetrics(path, cast(MetricShipper, sink))
    for step in range(100):
        log_metrics(a=step)
        source.read([])
        if step == 50:
            with path.open("ab", buffering=0) as late:  # has the file open while it is put aside
                for more in range(50):
                    log_metrics(filler=more)
                while not path.with_suffix(".old").exists():
                    source.read([])
                late.write(b'{"t": 1, "v": {"late": 1}}\n')
    while source.read([]):
        pass
    names = [name for record in sink.records for name in record.values]
    assert names.count("late") == 1
    assert [record.values["a"] for record in sink.records if "a" in record.values] == list(range(100))
    assert not path.with_suffix(".old").exists()


def nowhere() -> Reporter:
    """Its API is away."""
    control = Control()
    api = ApiClient("http://127.0.0.1:9", "token", 0, "me", control)
    vitals = Vitals(lambda: False, lambda request: None)
    return Reporter(api, Heartbeat(api, control, 3.0, [], vitals, lambda asked: None))


def test_a_disk_that_is_full_stops_metrics_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Spool, lines: Iterable[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    shipper = MetricShipper(nowhere(), Control(), Spool(tmp_path, "me"), said.append, Mask([]))
    shipper.start()
    with monkeypatch.context() as patched:
        patched.setattr(Spool, "append", full)
        shipper.write([Record(1, {"a": 1})])
    shipper.write([Record(2, {"a": 2})])
    assert said == ["weft: metrics are no longer kept: No space left on device"]
    assert shipper.room == 0
    assert shipper.flush(30)


@pytest.mark.parametrize("names", [[f"{n:x}" for n in range(40_000)], ["a"]])
def test_no_batch_has_more_values_than_the_api_takes(tmp_path: Path, names: list[str]) -> None:
    spool = Spool(tmp_path, "me", METRIC_BATCH_BYTES)
    shipper = MetricShipper(nowhere(), Control(), spool, print, Mask([]))
    for step in range(40_000 // len(names)):
        shipper.write([Record(step, dict.fromkeys(names, 1))])
    sizes = []
    while batch := spool.next_batch():
        sizes.append(sum(len(json.loads(line)["values"]) for line in batch.lines))
        spool.done()
    assert sum(sizes) == 40_000
    assert max(sizes) <= MOST_VALUES


class Sink:
    """A shipper that keeps what it is given."""

    room = 1_000_000

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: list[Record], left_out: int = 0) -> None:
        self.records += records


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        signal.sigtimedwait([], 0.02)
    raise AssertionError("not within 40 s")
