"""Waiting for the end of a job (:mod:`weft.resources.job_ends`)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from tests.cli.double import Answer, Double, Seen, as_json, job, problem

from weft import errors
from weft.client import Client
from weft.resources import job_ends

ID = "job-4k9x2m7qd1ze"
GOES_ON = as_json({"ended": False, "state": "PROCESSING", "reason": ""})
HAS_ENDED = as_json({"ended": True, "state": "COMPLETED", "reason": ""})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between requests, which take no time."""
    taken: list[float] = []
    # Other threads sleep as ever.
    monkeypatch.setattr(job_ends, "time", SimpleNamespace(monotonic=time.monotonic, sleep=taken.append))
    return taken


def test_the_server_holds_its_answer_until_the_end(
    double: Double, client: Client, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_ends, "_HELD", 0.2)

    def hold(seen: Seen) -> Answer:
        seconds = float(seen.query["wait"][0])
        time.sleep(seconds + 0.01)
        return GOES_ON

    double.on("GET", f"jobs/{ID}/end", hold, hold, HAS_ENDED)
    double.on("GET", f"jobs/{ID}", as_json(job(state="COMPLETED")))
    assert client.jobs.wait(ID).state == "COMPLETED"
    assert [seen.path.rpartition("/")[2] for seen in double.seen] == ["end"] * 3 + [ID]
    assert pauses == [], "the server has paused for the client"


def test_a_server_that_does_not_hold_its_answer_is_asked_with_pauses(
    double: Double, client: Client, pauses: list[float]
) -> None:
    double.on("GET", f"jobs/{ID}/end", GOES_ON, GOES_ON, HAS_ENDED)
    double.on("GET", f"jobs/{ID}", as_json(job(state="COMPLETED")))
    client.jobs.wait(ID)
    assert len(pauses) == 2
    assert min(pauses) >= job_ends._QUICKEST


def test_an_older_server(double: Double, client: Client, pauses: list[float]) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()), as_json(job()), as_json(job(state="COMPLETED")))
    assert client.jobs.wait(ID).state == "COMPLETED"
    assert len(pauses) == 2


def test_it_survives_an_outage(double: Double, client: Client, pauses: list[float]) -> None:
    double.on("GET", f"jobs/{ID}/end", GOES_ON, *[problem(503, "database_unavailable")] * 12, HAS_ENDED)
    away = [problem(503, "database_unavailable")] * 12
    double.on("GET", f"jobs/{ID}", *away, as_json(job(state="COMPLETED")))
    assert client.jobs.wait(ID).state == "COMPLETED"


@pytest.mark.parametrize(("state", "kind"), [("FAILED", errors.JobFailed), ("HALTED", errors.JobHalted)])
def test_it_raises_for_another_end(double: Double, client: Client, state: str, kind: type[errors.JobEnded]) -> None:
    double.on("GET", f"jobs/{ID}/end", HAS_ENDED)
    double.on("GET", f"jobs/{ID}", as_json(job(state=state, reason="learner 2 was killed: out of memory")))
    with pytest.raises(kind, match="learner 2 was killed") as caught:
        client.jobs.wait(ID)
    assert caught.value.job.id == ID
    assert client.jobs.wait(ID, check=False).state == state


@pytest.mark.usefixtures("pauses")
def test_a_job_that_was_halted_and_resumed_goes_on(double: Double, client: Client) -> None:
    double.on("GET", f"jobs/{ID}/end", HAS_ENDED)
    double.on("GET", f"jobs/{ID}", as_json(job(state="QUEUED")), as_json(job(state="COMPLETED")))
    assert client.jobs.wait(ID).state == "COMPLETED"


def test_it_ends_in_time(double: Double, client: Client) -> None:
    double.on("GET", f"jobs/{ID}/end", GOES_ON)
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s"):
        client.jobs.wait(ID, timeout=0.05)
    assert float(double.seen[0].query["wait"][0]) <= 0.05, "the server does not hold its answer for longer"


def test_a_deleted_job(double: Double, client: Client) -> None:
    with pytest.raises(errors.NotFound):
        client.jobs.wait(ID)


def test_many_threads_leave_connections_for_other_requests(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ends, "_MOST_HELD", 2)
    client, end = Client(double.url, "weft_user_x"), threading.Event()

    def hold(seen: Seen) -> Answer:
        if is_held(seen):
            end.wait(60)
        return HAS_ENDED if end.is_set() else GOES_ON

    def is_held(seen: Seen) -> bool:
        return float(seen.query["wait"][0]) > 0

    double.on("GET", f"jobs/{ID}/end", hold)
    double.on("GET", f"jobs/{ID}", as_json(job(state="COMPLETED")))
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(client.jobs.wait, ID) for _ in range(5)]
        while sum(not is_held(seen) for seen in double.seen) < 6:
            time.sleep(0.01)
        assert sum(map(is_held, double.seen)) == 2
        end.set()
        assert {each.result().state for each in waiting} == {"COMPLETED"}
