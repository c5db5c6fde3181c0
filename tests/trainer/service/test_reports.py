"""Reports save calls, and bring lines, metrics and heartbeats as surely as calls of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.trainer.agents import Launch
from tests.trainer.api_double import Refused
from tests.trainer.conftest import StartApi

from weft_trainer.control import Control
from weft_trainer.service import reporter as reporter_module
from weft_trainer.service.client import ApiClient
from weft_trainer.service.heartbeat import Heartbeat
from weft_trainer.service.reporter import Reporter
from weft_trainer.service.shipper import Shipper
from weft_trainer.service.spool import Batch, Spool
from weft_trainer.service.vitals import Vitals

_LOGS = """for i in 1 2 3; do
  echo line $i
  python -c "from weft_trainer import log_metrics; log_metrics(loss=$i, step=$i)"
done"""
_LINES = Batch(0, [b'{"t": 1, "s": "a"}'])
_RECORDS = Batch(0, [b'{"t": 1}'])


class _Api:
    """In the API's place: keeps which parts came together."""

    instance = "me"

    def __init__(self) -> None:
        self.reports: list[set[str]] = []
        self.alone: list[str] = []
        self.refused: dict[str, Any] = {}
        self.pause = 0.0

    def report(self, heartbeat: Mapping[str, Any] | None, logs: Batch | None, metrics: Batch | None) -> dict[str, Any]:
        parts = {"heartbeat": heartbeat, "logs": logs, "metrics": metrics}
        self.reports.append({name for name, part in parts.items() if part is not None})
        return {
            "heartbeat": {"stop": True, "grace_seconds": 7} if heartbeat else None,
            "refused": self.refused,
            "pause": self.pause,
        }

    def logs(self, batch: Batch, instance: str) -> None:
        self.alone.append("logs")

    def metrics(self, batch: Batch, instance: str) -> None:
        self.alone.append("metrics")


class _Usage:
    wrote, demand = False, 50.0

    def read(self) -> dict[str, Any]:
        return {"cpu_percent": 50.0}


def _reporter(api: _Api, control: Control) -> tuple[Reporter, Heartbeat]:
    client = cast(ApiClient, api)
    vitals = Vitals(lambda: False, lambda request: None)
    heartbeat = Heartbeat(client, control, 3600, [], vitals, lambda asked: None)
    return Reporter(client, heartbeat), heartbeat


def test_metrics_travel_with_lines_that_flow_and_the_heartbeat_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "_COMPANY", 3600.0)
    api, control = _Api(), Control()
    reporter, heartbeat = _reporter(api, control)
    reporter.metrics(_RECORDS, "me")
    assert api.reports == [{"metrics"}], "no lines flow, so the metrics do not wait for any"
    reporter._lines_at = time.monotonic() + 3600
    metrics = threading.Thread(target=reporter.metrics, args=(_RECORDS, "me"))
    metrics.start()
    while not reporter._waiting:
        time.sleep(0.001)
    heartbeat._usage, heartbeat._sent = cast(Any, _Usage()), heartbeat._sent - 3600
    reporter.logs(_LINES, "me")
    metrics.join()
    assert api.reports[1:] == [{"heartbeat", "logs", "metrics"}]
    assert api.alone == []
    assert control.stop_requested
    assert heartbeat.take() is None, "it has just been sent"


def test_what_a_report_does_not_bring_goes_alone() -> None:
    api, control = _Api(), Control()
    reporter, _ = _reporter(api, control)
    api.refused = {"logs": {"status": 429}}
    reporter.logs(_LINES, "me")
    reporter.logs(_LINES, "an agent that died here")
    assert (api.reports, api.alone) == ([{"logs"}], ["logs", "logs"])
    reporter.hurry()
    reporter.metrics(_RECORDS, "me")
    assert (api.reports[1:], api.alone[2:]) == ([{"metrics"}], [])


def test_a_busy_api_gets_the_lines_of_several_seconds_at_once_and_the_last_ones_at_the_end(tmp_path: Path) -> None:
    api, control = _Api(), Control()
    reporter, heartbeat = _reporter(api, control)
    api.pause = 7.5
    spool = Spool(tmp_path / "spool", "me")
    shipper = Shipper(spool, reporter.logs, control, lambda: reporter.pause, cast(Any, None), "test")
    shipper.start()
    spool.append([b'{"t": 1, "s": "first"}'])
    shipper.ring()
    while not heartbeat.pause:
        time.sleep(0.001)
    for line in (b'{"t": 2, "s": "second"}', b'{"t": 3, "s": "third"}'):
        spool.append([line])
        shipper.ring()
    assert shipper.flush(60), "the end of the program ends the pause"
    assert (api.reports, reporter.pause) == ([{"logs"}, {"logs"}], 7.5)


@pytest.mark.parametrize("fault", [None, 404, 503], ids=["reports", "an older API", "reports fail"])
def test_all_arrives_once(start_api: StartApi, launch: Launch, fault: int | None) -> None:
    api = start_api(_LOGS, heartbeat_seconds=0.05)
    if fault:
        api.refuse["report"] = Refused(fault, "x")
    else:
        api.lose["logs"] = api.lose["metrics"] = 1
    assert launch(api).wait() == 0
    learner = api.learners[0]
    assert learner.lines == ["line 1", "line 2", "line 3"]
    assert learner.points("loss") == [(1, 1), (2, 2), (3, 3)]
    assert bool(api.calls["report"]) == (fault is None)
    assert api.problems == []
