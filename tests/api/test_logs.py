"""Log lines: every one once, in one order, readable in any part, followed without a gap."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import func, select, update
from tests.api.conftest import Agent, Api, Attempted, Person, code_of, sizes_of_groups

from weft_api.access.auth import find_principal
from weft_api.logs import ingest
from weft_api.logs.chunks import ChunkFilter, ChunkReader
from weft_core.log_archive import logs_prefix
from weft_core.objects import Objects, StoreError
from weft_core.settings import TimingSettings
from weft_core.store.models import Attempt, Job, LogChunk, LogCursor, LogFrame
from weft_core.tokens import hash_token
from weft_workers import archiving
from weft_workers.archiving import Archiver
from weft_workers.context import Context as WorkerContext
from weft_workers.context import make_context

Events = list[tuple[str, str | None, dict[str, Any]]]


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


def _lines(person: Person, job_id: str, query: str = "") -> list[dict[str, Any]]:
    answer = person.http.get(f"/api/v1/jobs/{job_id}/logs?{query}")
    assert answer.status_code == 200, answer.text
    lines: list[dict[str, Any]] = answer.json()["lines"]
    return lines


def _texts(person: Person, job_id: str, query: str = "") -> list[str]:
    return [line["text"] for line in _lines(person, job_id, query)]


def events(response: httpx.Response) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """(name, id, data) of a stream of server-sent events."""
    name, number, data = "", None, ""
    for line in response.iter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "id":
            number = value
        elif key == "data":
            data = value
        elif not line and name:
            yield name, number, json.loads(data)
            name, number, data = "", None, ""


def follow(
    person: Person,
    job_id: str,
    query: str = "",
    until: Callable[[Events], bool] = lambda _: False,
    then: Callable[[], object] = lambda: None,
    last_event_id: str | None = None,
) -> Events:
    """The events of a stream up to its end, or until there are enough; ``then`` happens once the first has come."""
    found: Events = []
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    with person.http.stream("GET", f"/api/v1/jobs/{job_id}/logs/follow?{query}", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        for event in events(response):
            found.append(event)
            if len(found) == 1:
                then()
            if until(found):
                break
    return found


def finish(api: Api, attempt: Attempted, state: str = "COMPLETED") -> None:
    api.end_attempt(attempt)
    for reached in ("PENDING", "PROCESSING", state):
        api.set_state(attempt.job_id, reached, f"now {reached}")


def test_a_repeated_batch_is_there_once(ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    first.log(0, "a", "b")
    first.log(0, "a", "b")
    second.log(0, "c")
    first.log(1, "d")
    first.log(0, "a", "b")
    lines = _lines(ann, gang.job_id)
    assert [(line["n"], line["learner"], line["text"]) for line in lines] == [
        (0, 1, "a"),
        (1, 1, "b"),
        (2, 2, "c"),
        (3, 1, "d"),
    ]
    assert lines[0]["attempt"] == 1
    assert lines[0]["t"] == 1_769_847_309_000


def test_concurrent_repeated_batches_leave_no_gap_and_no_double(ann: Person, gang: Attempted) -> None:
    with ThreadPoolExecutor(8) as pool:
        for sequence in range(10):
            calls = [agent for agent in gang.agents for _ in range(3)]
            list(pool.map(lambda agent, n=sequence: agent.log(n, f"{agent.rank}:{n}", "more"), calls))
    lines = _lines(ann, gang.job_id)
    assert [line["n"] for line in lines] == list(range(40))
    assert sorted(line["text"] for line in lines if line["text"] != "more") == sorted(
        f"{rank}:{sequence}" for rank in range(2) for sequence in range(10)
    )


def test_batches_that_wait_are_taken_in_together_and_each_hears_of_its_own(
    api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = sizes_of_groups(monkeypatch, ingest)
    attempt = api.attempt(ann.submit(set={"learners": "12"})["id"])
    for agent in attempt.agents:
        agent.start()
    good = attempt.agents[:10]
    another = Agent(good[0].http, 10)
    nobody = Agent(good[0].http, 12)
    calls: list[Callable[[], httpx.Response]] = [
        *(
            partial(caller.post, "logs", sequence=0, lines=[{"t": 1, "s": f"of {caller.rank}"}])
            for caller in [*good, *good]
        ),
        partial(another.post, "logs", sequence=0, lines=[{"t": 1, "s": "of a stranger"}]),
        partial(nobody.post, "logs", sequence=0, lines=[{"t": 1, "s": "of nobody"}]),
        partial(good[0].post, "logs", sequence=1, lines=[{"t": -1, "s": "from before time"}]),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        with api.context.database.transaction() as session:  # requests that take in lines have to wait for this row
            session.execute(select(LogCursor).where(LogCursor.job_id == attempt.job_id).with_for_update())
            answers = [pool.submit(call) for call in calls]
            while ingest.QUEUE.of(api.context).waiting + sum(groups) < len(calls):
                time.sleep(0.01)
        statuses = [answer.result().status_code for answer in answers]
    assert statuses == [204] * 20 + [410, 400, 400]
    assert len(groups) <= 4
    assert sum(groups) == len(calls)
    lines = _lines(ann, attempt.job_id)
    assert [line["n"] for line in lines] == list(range(10))
    assert sorted(line["text"] for line in lines) == [f"of {rank}" for rank in range(10)]


def test_hostile_text_is_stored_as_it_came_where_that_is_possible(ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    body = (
        b'{"rank": 0, "instance": "%s", "sequence": 0, "lines": ['
        b'{"t": 1, "s": "nul \\u0000 end"}, {"t": 2, "s": "half \\ud800 pair"}, {"t": 3, "s": "raw \xff\xfe bytes"},'
        b'{"t": 4, "s": "two\\nlines"}, {"t": 5, "s": ""}, {"t": 6, "s": "\\u2028 \\r \\u0085 \\u001c"}]}'
    ) % agent.instance.encode()
    assert agent.http.post("/api/v1/learner/logs", content=body).status_code == 204
    assert _texts(ann, gang.job_id) == [
        "nul \ufffd end",
        "half ? pair",
        "raw \ufffd\ufffd bytes",
        "two",
        "lines",
        "",
        "\u2028 \r \u0085 \u001c",
    ]
    followed = follow(ann, gang.job_id, until=lambda found: len(found) == 8)
    assert [data["text"] for name, _, data in followed if name == "line"] == _texts(ann, gang.job_id)


def test_too_much_in_one_batch(gang: Attempted) -> None:
    agent = gang.agents[0]
    assert agent.post("logs", sequence=0, lines=[{"t": 0, "s": ""}] * 2001).status_code == 400
    answer = agent.post("logs", sequence=0, lines=[{"t": 0, "s": "x" * (9 << 20)}])
    assert (answer.status_code, code_of(answer)) == (413, "too_large")
    assert agent.post("logs", sequence=0, lines=[]).status_code == 204


def test_reading_parts(api: Api, ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    for sequence in range(20):
        first.log(sequence, *(f"one {sequence}.{n}" for n in range(3)), t=1000 * sequence)
        second.log(sequence, f"two {sequence}", t=1000 * sequence)
    job = gang.job_id
    everything = _texts(ann, job)
    assert len(everything) == 80
    assert _texts(ann, job, "from=10&limit=5") == everything[10:15]
    page = ann.http.get(f"/api/v1/jobs/{job}/logs?limit=7").json()
    assert page["next"] == 7
    assert page["end"] is False
    assert _texts(ann, job, "tail=3") == everything[-3:]
    assert _texts(ann, job, "tail=0") == []
    assert _texts(ann, job, "tail=1000") == everything
    two = [text for text in everything if text.startswith("two")]
    assert _texts(ann, job, "learner=2") == two
    assert _texts(ann, job, "learner=2&tail=4") == two[-4:]
    assert _texts(ann, job, "learner=2&limit=2") == two[:2]
    assert _texts(ann, job, "attempt=2") == []
    assert _texts(ann, job, "q=TWO 1") == [text for text in two if text.startswith("two 1")]
    assert _texts(ann, job, "since=18000") == everything[-8:]
    assert _texts(ann, job, "from=500") == []
    assert _texts(ann, job, "from=78&tail=40") == everything[78:]
    # Pages of a filtered log join without a gap, however few lines match the filter.
    joined, position = [], 0
    while True:
        page = ann.http.get(f"/api/v1/jobs/{job}/logs?learner=2&limit=3&from={position}").json()
        joined += [line["text"] for line in page["lines"]]
        if not page["lines"]:
            break
        position = page["next"]
    assert joined == two
    assert page["next"] == 80
    assert page["end"] is False
    finish(api, gang)
    assert ann.http.get(f"/api/v1/jobs/{job}/logs?limit=7").json()["end"] is False
    assert ann.http.get(f"/api/v1/jobs/{job}/logs?from=80").json()["end"] is True


def test_download(ann: Person, gang: Attempted) -> None:
    for agent in gang.agents:
        agent.log(0, f"from {agent.rank}")
    answer = ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs/download")
    assert answer.text == "learner 1 | from 0\nlearner 2 | from 1\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs/download?learner=2").text == "from 1\n"


def test_a_log_that_reaches_its_limit_says_so_once(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.settings.limits, "log_bytes_per_job", 100)
    attempt = api.attempt(ann.submit()["id"])
    agent = attempt.agents[0]
    agent.start()
    agent.log(0, "x" * 49)
    agent.log(1, "y" * 30, "z" * 500, "w")
    refused = agent.post("logs", sequence=2, lines=[{"t": 1, "s": "later " * 200}])
    assert (refused.status_code, code_of(refused)) == (409, "log_full")
    agent.log(1, "y" * 30, "z" * 500, "w")
    agent.log(2, "[weft] 17 lines were left out")
    *lines, marker, left_out = _texts(ann, attempt.job_id)
    assert lines == ["x" * 49, "y" * 30]
    assert marker.startswith(
        "[weft] the job's log has reached its limit of 100 bytes: lines from here on are left out;"
    )
    assert left_out == "[weft] 17 lines were left out"
    with api.context.database.transaction() as session:
        assert session.get_one(LogCursor, attempt.job_id).bytes >= 100


def test_learners_are_told_their_share_of_what_the_job_may_log(api: Api, ann: Person) -> None:
    changes = {"learners": "4", "elastic.min": "1", "elastic.max": "10", "storage": "1 GiB"}
    told = api.attempt(ann.submit(set=changes)["id"]).agents[3].start()["log"]
    assert told == {
        "lines_per_second": 1000.0,
        "bytes_per_second": (2 << 20) / 10,
        "burst_seconds": 20.0,
        "spool_bytes": (1 << 30) // 10,
        "file_bytes": (1 << 30) // 10,
    }


def test_a_job_that_logs_too_fast_is_told_to_wait(api: Api, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.settings.limits, "log_lines_per_second", 1)
    monkeypatch.setattr(api.settings.limits, "log_burst_seconds", 100.0)
    attempt = api.attempt(ann.submit()["id"])
    agent = attempt.agents[0]
    agent.start()
    agent.log(0, *["line"] * 600)  # at five times its rate, as it may be catching up: 120 s
    refused = agent.post("logs", sequence=1, lines=[{"t": 1, "s": "more"}])
    assert (refused.status_code, code_of(refused), refused.headers["Retry-After"]) == (429, "too_many_lines", "1")
    agent.log(0, *["line"] * 600)
    monkeypatch.setattr(api.settings.limits, "log_burst_seconds", 150.0)
    agent.log(1, "more")
    assert _texts(ann, attempt.job_id, "from=599") == ["line", "more"], "nothing was lost, nothing is there twice"


def test_following_a_whole_job(api: Api, ann: Person, gang: Attempted) -> None:
    first, second = gang.agents
    first.log(0, "before")

    def go_on() -> None:
        second.log(0, "between")
        api.set_state(gang.job_id, "PENDING")
        api.set_state(gang.job_id, "PROCESSING", "user code runs")
        first.log(1, *(f"many {n}" for n in range(1500)))
        api.end_attempt(gang)
        api.set_state(gang.job_id, "COMPLETED", "done")

    found = follow(ann, gang.job_id, then=go_on)
    lines = [(number, data["text"]) for name, number, data in found if name == "line"]
    assert lines == [
        (str(n), text) for n, text in enumerate(["before", "between"] + [f"many {n}" for n in range(1500)])
    ]
    assert found[-1] == ("end", None, {"state": "COMPLETED", "reason": "done"})
    assert found[0][0] == "state"
    assert found[0][2]["state"] == "QUEUED"


def test_a_retry_goes_on_in_the_same_stream(api: Api, ann: Person, gang: Attempted) -> None:
    gang.agents[0].log(0, "first try")

    def retry() -> None:
        api.end_attempt(gang)
        again = api.attempt(gang.job_id)
        again.agents[0].start()
        again.agents[0].log(0, "second try")
        finish(api, again)

    found = [data for name, _, data in follow(ann, gang.job_id, then=retry) if name == "line"]
    assert [(line["attempt"], line["text"]) for line in found] == [(1, "first try"), (2, "second try")]


def test_resuming_where_the_connection_broke(api: Api, ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    agent.log(0, *(f"line {n}" for n in range(700)))
    seen: list[str] = []
    last: str | None = None

    def has_lines(count: int, found: Events) -> bool:
        return sum(name == "line" for name, _, _ in found) == count

    for count in (1, 300, 2):
        part = follow(ann, gang.job_id, until=partial(has_lines, count), last_event_id=last)
        seen += [data["text"] for name, _, data in part if name == "line"]
        last = next(number for name, number, _ in reversed(part) if name == "line")
        assert last
    agent.log(1, "the last")
    finish(api, gang)
    part = follow(ann, gang.job_id, last_event_id=last)
    seen += [data["text"] for name, _, data in part if name == "line"]
    assert seen == [f"line {n}" for n in range(700)] + ["the last"]


def test_following_from_the_end_and_one_learner(api: Api, ann: Person, gang: Attempted) -> None:
    for sequence in range(3):
        for agent in gang.agents:
            agent.log(sequence, f"{agent.rank}.{sequence}")
    finish(api, gang)

    def lines(query: str) -> list[str]:
        return [data["text"] for name, _, data in follow(ann, gang.job_id, query) if name == "line"]

    assert lines("tail=2") == ["0.2", "1.2"]
    assert lines("learner=1") == ["0.0", "0.1", "0.2"]
    assert lines("learner=1&tail=1") == ["0.2"]
    assert lines("from=4") == ["0.2", "1.2"]
    assert lines("tail=0") == []


def test_following_a_deleted_job_ends(api: Api, ann: Person, gang: Attempted) -> None:
    def delete() -> None:
        with api.context.database.transaction() as session:
            session.delete(session.get_one(Job, gang.job_id))

    assert follow(ann, gang.job_id, then=delete)[-1] == (
        "end",
        None,
        {"state": "DELETED", "reason": "the job has been deleted"},
    )


def test_a_revoked_token_follows_no_longer(ann: Person, gang: Attempted) -> None:
    def revoke() -> None:
        (token,) = ann.http.get("/api/v1/tokens").json()["tokens"]
        assert ann.http.delete(f"/api/v1/tokens/{token['id']}").status_code == 204

    found = follow(ann, gang.job_id, then=revoke)
    assert [name for name, _, _ in found] == ["state"], "it ends, but not as the job's end"


def test_bad_resume_ids(ann: Person, gang: Attempted) -> None:
    for bad in ("x", "-1", "9" * 19, "1.5"):
        answer = ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs/follow", headers={"Last-Event-ID": bad})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


@pytest.mark.slow
def test_followers_are_counted_and_hold_no_connection(api: Api, ann: Person, gang: Attempted) -> None:
    gang.agents[0].log(0, *["x" * 1000] * 300)
    clients = []
    for _ in range(40):
        client = httpx.Client(base_url=api.url, headers=dict(ann.http.headers), timeout=120)
        stream = client.stream("GET", f"/api/v1/jobs/{gang.job_id}/logs/follow")
        response = stream.__enter__()
        clients.append((client, stream, events(response)))
    for _, _, found in clients:
        next(found)  # and then they read no further
    # More than there are Postgres connections: if each held one, this would wait for ever.
    assert ann.http.get("/api/v1/jobs").status_code == 200
    # The server notices in a moment that the clients of other tests have gone.
    while 'weft_api_followers{stream="logs"} 40.0' not in ann.http.get("/metrics").text:
        time.sleep(0.05)
    for client, stream, _ in clients:
        stream.__exit__(None, None, None)
        client.close()


def test_events_are_read_and_followed(api: Api, ann: Person, gang: Attempted) -> None:
    job = gang.job_id
    api.set_state(job, "PENDING", "starting")
    page = ann.http.get(f"/api/v1/jobs/{job}/events").json()["events"]
    assert [(event["kind"], event["state"]) for event in page] == [("submitted", "QUEUED"), ("state", "PENDING")]
    assert ann.http.get(f"/api/v1/jobs/{job}/events?after={page[0]['id']}").json()["events"] == page[1:]
    assert ann.http.get(f"/api/v1/jobs/{job}/events?limit=1").json()["events"] == page[:1]
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(page[0]["id"])}
    with ann.http.stream("GET", f"/api/v1/jobs/{job}/events", headers=headers) as response:
        coming = events(response)
        found = [next(coming)]
        finish_from_pending(api, gang)
        found += coming
    assert [data["state"] for name, _, data in found if name == "event"] == ["PENDING", "FAILED"]
    assert found[0][1] == str(page[1]["id"])
    assert found[-1] == ("end", None, {"state": "FAILED", "reason": "exit code 3"})


def finish_from_pending(api: Api, attempt: Attempted) -> None:
    api.end_attempt(attempt)
    api.set_state(attempt.job_id, "FAILED", "exit code 3")


class FailingObjects:
    """The installation's store, which fails, or reports each archive before it is written."""

    def __init__(self, objects: Objects, before_put: Callable[[], None]) -> None:
        self._objects = objects
        self._before_put = before_put

    def put(self, key: str, body: bytes) -> None:
        self._before_put()
        self._objects.put(key, body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


@pytest.fixture
def worker(api: Api) -> Iterator[WorkerContext]:
    settings = api.settings.model_copy(update={"timings": TimingSettings(log_settle=0.0)})
    made = make_context(settings, "inst-test", {})
    yield made
    made.close()


def _rows(api: Api, job_id: str) -> tuple[int, int]:
    """How many chunks and frames there are."""
    with api.context.database.transaction() as session:
        chunks = select(func.count()).select_from(LogChunk).where(LogChunk.job_id == job_id)
        frames = select(func.count()).select_from(LogFrame).where(LogFrame.job_id == job_id)
        return session.scalar(chunks) or 0, session.scalar(frames) or 0


@pytest.mark.slow
def test_reads_are_the_same_before_and_after_the_log_has_moved_to_s3(
    api: Api, ann: Person, gang: Attempted, worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The archiver would also take the long logs of other tests, in pieces as small as these.
    with api.context.database.transaction() as session:
        session.execute(update(Attempt).where(Attempt.job_id != gang.job_id).values(logs_due=None))
    monkeypatch.setattr(archiving, "FRAME_BYTES", 2000)
    monkeypatch.setattr(archiving, "PIECE_BYTES", 20_000)
    first, second = gang.agents
    for sequence in range(60):
        first.log(sequence, *(f"one {sequence}.{n} \x1b[31mred\x1b[0m é" for n in range(40)), t=1000 * sequence)
        if sequence % 7 == 0:
            second.log(sequence // 7, f"two {sequence}", "", t=1000 * sequence + 500)
    job = gang.job_id
    queries = [
        "limit=10000", "tail=3", "tail=1000&learner=2", "from=777&limit=20", "learner=2", "learner=1&tail=50",
        "attempt=1&limit=5", "attempt=2", "q=TWO 4", "since=31&limit=10000", "from=2417", "tail=10000&limit=10000",
    ]  # fmt: skip

    principal = find_principal(api.context, hash_token(ann.token))
    assert principal is not None

    def read() -> list[Any]:
        download = ann.http.get(f"/api/v1/jobs/{job}/logs/download").text
        followed = [data for name, _, data in follow(ann, job, "from=100", _enough) if name == "line"]
        reader = ChunkReader(api.context, principal, job)
        times = [reader.at(datetime.fromtimestamp(at, UTC), ChunkFilter()) for at in (0, 7.2, 30, 59.1, 60)]
        backward = [chunk.first_line for chunk in reader.backward(2000, ChunkFilter(learner=2), 3)]
        return [*(_lines(ann, job, query) for query in queries), download, followed, times, backward[0]]

    before = read()
    Archiver(worker).archive_due()
    assert _rows(api, job)[1] == 0, "the attempt is not over"
    api.end_attempt(gang)
    slow = Archiver(worker)._read(job)
    assert slow is not None
    Archiver(worker).archive_due()
    assert Archiver(worker)._commit(job, "somewhere", slow) is False, "another worker was faster"
    chunks, frames = _rows(api, job)
    assert chunks == 0
    assert frames > 20
    objects = list(api.context.objects.objects(logs_prefix(ann.project_id, job)))
    assert 3 <= len(objects) < frames
    assert read() == before

    # The retry's lines follow. The dead agent's last lines come in between, once, although its rows are gone.
    retry = api.attempt(job)
    retry.agents[0].start()
    retry.agents[0].log(0, "second try")
    late = {"sequence": 60, "lines": [{"t": 61_000, "s": "found on the disk"}]}
    assert code_of(first.post("logs", **late)) == "stale_attempt"
    for _ in range(2):
        assert first.post("logs", **late, late=True).status_code == 204
        assert first.post("logs", sequence=59, lines=[{"t": 1, "s": "again"}], late=True).status_code == 204
    Archiver(worker).archive_due()
    retry.agents[0].log(1, "goes on")
    tail = [(2, "second try"), (1, "found on the disk"), (2, "goes on")]
    assert [(line["attempt"], line["text"]) for line in _lines(ann, job, "tail=3")] == tail
    assert _rows(api, job) == (3, frames), "an open attempt's lines stay, and what came after them"
    finish(api, retry)
    Archiver(worker).archive_due()
    assert _rows(api, job)[0] == 0
    assert [line["text"] for line in _lines(ann, job, "tail=3")] == [text for _, text in tail]
    lines = _lines(ann, job, "limit=10000")
    assert [line["n"] for line in lines] == list(range(len(before[0]) + 3))


def _enough(found: Events) -> bool:
    return sum(name == "line" for name, _, _ in found) == 700


@pytest.mark.slow
def test_a_worker_that_dies_while_it_archives_loses_and_doubles_nothing(
    api: Api, ann: Person, gang: Attempted, worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "FRAME_BYTES", 500)
    monkeypatch.setattr(archiving, "PIECE_BYTES", 1000)
    for sequence in range(30):
        gang.agents[0].log(sequence, *(f"{sequence}.{n} " + "x" * 20 for n in range(5)))
    finish(api, gang)
    job, expected = gang.job_id, _lines(ann, gang.job_id)
    deaths = 0

    def die() -> None:
        """Every second time, in both places: before S3 has it, and after."""
        nonlocal deaths
        deaths += 1
        if deaths % 2:
            raise StoreError("killed before", "unreachable")

    failing = replace(worker, objects=cast(Objects, FailingObjects(worker.objects, die)))
    commit = Archiver._commit

    def dies_after(self: Archiver, job_id: str, key: str, piece: Any) -> bool:
        if deaths % 3 == 0:
            raise StoreError("killed after", "unreachable")
        return commit(self, job_id, key, piece)

    monkeypatch.setattr(Archiver, "_commit", dies_after)
    for _ in range(50):
        with api.context.database.transaction() as session:  # as if its time had come again
            session.execute(update(Attempt).where(Attempt.logs_due.is_not(None)).values(logs_due=func.now()))
        with contextlib.suppress(StoreError):
            Archiver(failing).archive_due()
        assert _lines(ann, job) == expected
    assert _rows(api, job)[0] == 0
    referred = {stored.key for stored in api.context.objects.objects(logs_prefix(ann.project_id, job))}
    with api.context.database.transaction() as session:
        assert set(session.scalars(select(LogFrame.object).where(LogFrame.job_id == job))) == referred
