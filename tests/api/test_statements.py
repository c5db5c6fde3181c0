"""The number of statements of the most frequent requests. A change that adds one must change it here, on purpose."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.api.conftest import HELLO, Agent, Api, Person, zipped
from tests.api.statements import counted

LINE = {"t": 1_769_847_309_000, "s": "a line"}
RECORD = {"t": 1_769_847_309_000, "kind": "user", "group": "train", "values": {"loss": 0.5}}


def _submit(person: Person, agent: Agent, job_id: str) -> None:
    files = {"code": zipped(train__py=str(uuid.uuid4()))}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    person.http.post("/api/v1/jobs", data={"manifest": HELLO}, files=files, headers=key).raise_for_status()


def _show(person: Person, agent: Agent, job_id: str) -> None:
    person.http.get(f"/api/v1/jobs/{job_id}").raise_for_status()


def _list(person: Person, agent: Agent, job_id: str) -> None:
    person.http.get("/api/v1/jobs").raise_for_status()


def _heartbeat(person: Person, agent: Agent, job_id: str) -> None:
    agent.post("heartbeat", phase="PROCESSING").raise_for_status()


class _Batches:
    """The numbers of the learner's batches."""

    def __init__(self) -> None:
        self._next = 0

    def log(self, person: Person, agent: Agent, job_id: str) -> None:
        self._send(agent, "logs", lines=[LINE])

    def metrics(self, person: Person, agent: Agent, job_id: str) -> None:
        self._send(agent, "metrics", records=[RECORD])

    def report(self, person: Person, agent: Agent, job_id: str) -> None:
        logs = {"sequence": self._next, "lines": [LINE]}
        metrics = {"sequence": self._next, "records": [RECORD]}
        agent.post("report", heartbeat={}, logs=logs, metrics=metrics).raise_for_status()
        self._next += 1

    def _send(self, agent: Agent, verb: str, **content: Any) -> None:
        agent.post(verb, sequence=self._next, **content).raise_for_status()
        self._next += 1


@pytest.mark.parametrize(
    ("request_", "statements", "transactions"),
    [
        # The sign-in; its key; its key, the code, the job, the event and the log's cursor; the audit record. Each of
        # the two transactions is confined by one more.
        (_submit, 10, 2),
        (_show, 12, 1),
        (_list, 6, 1),
        (_heartbeat, 9, 1),
        (_Batches().log, 14, 1),
        (_Batches().metrics, 10, 1),
        (_Batches().report, 22, 1),
    ],
    ids=["submit", "show", "list", "heartbeat", "logs", "metrics", "report"],
)
def test_a_request_asks_no_more_often(
    api: Api, ann: Person, request_: Callable[[Person, Agent, str], None], statements: int, transactions: int
) -> None:
    job_id = ann.submit()["id"]
    (agent,) = api.attempt(job_id).agents
    agent.start()
    for _ in range(2):  # the first request looks up what the next ones have cached
        with counted(api) as found:
            request_(ann, agent, job_id)
    assert len(found.statements) <= statements, found
    assert found.transactions <= transactions, found
