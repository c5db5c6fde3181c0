"""Reading a log in parts, upwards, from a time; searching it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.api.conftest import Api, Attempted, Person, code_of

from weft_api.logs import read, search
from weft_api.logs.chunks import ChunkReader
from weft_core.settings import TimingSettings
from weft_core.store.models import LogCursor
from weft_workers import archiving
from weft_workers.archiving import Archiver
from weft_workers.context import make_context


@pytest.fixture
def gang(api: Api, ann: Person) -> Attempted:
    attempt = api.attempt(ann.submit(set={"learners": "2"})["id"])
    for agent in attempt.agents:
        agent.start()
    return attempt


@pytest.fixture(params=["in Postgres", "in S3"])
def written(api: Api, gang: Attempted, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Attempted:
    """100 lines: of each five, the first three by learner 1 and two by learner 2, one second later each five."""
    for step in range(20):
        gang.agents[0].log(step, *(f"epoch {step} loss 0.{n}" for n in range(3)), t=1000 * step)
        gang.agents[1].log(step, f"Epoch {step} wörker", f"naïve [{step}]", t=1000 * step)
    if request.param == "in S3":
        monkeypatch.setattr(archiving, "FRAME_BYTES", 500)
        settings = api.settings.model_copy(update={"timings": TimingSettings(log_settle=0)})
        api.end_attempt(gang)
        context = make_context(settings, "inst-test", {})
        Archiver(context).archive_due()
        context.close()
        with api.context.database.transaction() as session:
            assert session.get_one(LogCursor, gang.job_id).archived == 100
    return gang


def get(person: Person, job_id: str, part: str = "", **query: Any) -> dict[str, Any]:
    if "start" in query:
        query["from"] = query.pop("start")
    answer = person.http.get(f"/api/v1/jobs/{job_id}/logs{part}", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def numbers(page: dict[str, Any]) -> list[int]:
    return [line["n"] for line in page["lines"]]


@pytest.mark.slow
def test_reading_upwards_joins_without_a_gap(ann: Person, written: Attempted) -> None:
    job = written.job_id
    page = get(ann, job, tail=5)
    assert (page["first"], page["next"], page["previous"], page["total"]) == (95, 100, 95, 100)
    assert numbers(get(ann, job, before=95, limit=3)) == [92, 93, 94]
    for filters in ({}, {"learner": 2}, {"q": "loss 0.1"}, {"attempt": 1, "learner": 1}):
        downwards = numbers(get(ann, job, **filters))
        upwards: list[int] = []
        before: int | None = 100
        while before is not None:
            page = get(ann, job, before=before, limit=7, **filters)
            assert page["next"] == before
            upwards = numbers(page) + upwards
            before = page["previous"]
        assert upwards == downwards
    assert numbers(get(ann, job, before=10**9, limit=1)) == [99]
    assert get(ann, job, before=0)["lines"] == []
    assert get(ann, job, attempt=2)["first"] is None
    answer = ann.http.get(f"/api/v1/jobs/{job}/logs", params={"before": 5, "tail": 5})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")


def test_reading_from_a_time(ann: Person, written: Attempted) -> None:
    job = written.job_id
    assert get(ann, job, at="7000", limit=1)["first"] == 35
    assert get(ann, job, at="1970-01-01T00:00:06.5Z", learner=2, limit=1)["first"] == 38
    assert get(ann, job, at="0")["first"] == 0
    page = get(ann, job, at="1d")
    assert (page["first"], page["next"], page["previous"]) == (None, 100, 100)
    assert ann.http.get(f"/api/v1/jobs/{job}/logs?at=soon").json()["problems"][0]["path"] == "query.at"


def test_a_rare_text_is_not_looked_for_without_end(
    ann: Person, written: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (read, search):
        monkeypatch.setattr(module, "SCAN_BYTES", 100)
    page = get(ann, written.job_id, tail=1, q="epoch 0 loss")
    assert page["lines"] == []
    page = get(ann, written.job_id, before=100, q="epoch 0 loss")
    assert page["lines"] == []
    assert 0 < page["previous"] < 100, "it says where to go on"
    found = get(ann, written.job_id, "/search", q="[19]")
    assert found["matches"] == []
    assert 0 < found["next"] < 100
    assert not found["end"]


def sought(person: Person, job_id: str, **query: Any) -> list[int]:
    """The numbers of all lines that match, asked for until the end."""
    found, position = [], 0
    while True:
        page = get(person, job_id, "/search", start=position, **query)
        found += [match["line"]["n"] for match in page["matches"]]
        if page["end"]:
            return found
        assert page["next"] > position
        position = page["next"]


def test_searching(ann: Person, written: Attempted) -> None:
    job = written.job_id
    lines = get(ann, job)["lines"]

    def those(test: Any) -> list[int]:
        return [line["n"] for line in lines if test(line["text"])]

    assert sought(ann, job, q="EPOCH 1") == those(lambda text: "epoch 1" in text.lower())
    assert sought(ann, job, q="Epoch 1", case=True) == those(lambda text: "Epoch 1" in text)
    assert sought(ann, job, q="WÖRKER", learner=2, limit=3) == those(lambda text: "wörker" in text)
    assert sought(ann, job, q="wörker", learner=1) == []
    assert sought(ann, job, q="[7]") == those(lambda text: text == "naïve [7]"), "no pattern unless it is said to be"
    assert sought(ann, job, q=r"^epoch 1\d loss 0\.[02]$", regex=True) == those(
        lambda text: text.startswith("epoch 1") and len(text) == 17 and text[-1] in "02"
    )
    assert sought(ann, job, q=r"\Anaïve \[3\]\z", regex=True) == those(lambda text: text == "naïve [3]")
    assert sought(ann, job, q=r"x*", regex=True, limit=9) == list(range(100)), "what matches nothing matches each line"
    assert sought(ann, job, q=r"0\nepoch|[^z]+\n", regex=True) == [], "a match never goes over a line's end"
    (match,) = get(ann, job, "/search", q="ve [7", context=4)["matches"]
    assert [line["n"] for line in match["before"] + [match["line"]] + match["after"]] == list(range(35, 44))
    assert match["spans"] == [[3, 8]], "in characters, not bytes"
    (match,) = get(ann, job, "/search", q="epoch 0 loss 0.1", context=20, learner=1)["matches"]
    assert [line["learner"] for line in match["before"] + match["after"]] == [1] * 21
    assert [line["n"] for line in match["before"]] == [0]


def test_no_pattern_holds_up_the_server(ann: Person, gang: Attempted) -> None:
    gang.agents[0].log(0, "a" * 60_000 + "!")
    begun = time.process_time()
    assert sought(ann, gang.job_id, q="(a|aa|a*)*(a*a*)*b", regex=True) == []
    # An engine that backtracks would take longer than the universe is old.
    assert time.process_time() - begun < 20
    for bad, why in {"(": "missing )", "(?=a)": "(?=", "a{1000}{1000}": "bad repetition", r"(a)\1": r"\1"}.items():
        answer = ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs/search", params={"q": bad, "regex": True})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        (problem,) = answer.json()["problems"]
        assert why in problem["message"]
        assert problem["found"] == bad
    assert sought(ann, gang.job_id, q="(") == []


def test_what_is_found_in_huge_lines_is_bounded(ann: Person, gang: Attempted) -> None:
    agent = gang.agents[0]
    for sequence in range(8):
        agent.log(sequence, "x" * 1_000_000)
    page = get(ann, gang.job_id, "/search", q="x", context=1)
    assert 0 < len(page["matches"]) < 8
    assert sought(ann, gang.job_id, q="x") == list(range(8))
    with ann.http.stream("GET", f"/api/v1/jobs/{gang.job_id}/logs/download") as response:
        assert sum(len(piece) for piece in response.iter_bytes()) == 8 * (len("learner 1 | \n") + 1_000_000)


def test_a_foreign_log_is_not_found(api: Api, ann: Person, bob: Person, written: Attempted) -> None:
    for part in ("", "/search?q=loss", "/follow", "/download"):
        answer = bob.http.get(f"/api/v1/jobs/{written.job_id}/logs{part}")
        assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_a_tail_reaches_the_end_though_lines_come_meanwhile(
    api: Api, ann: Person, gang: Attempted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a follower that starts at `next` would miss lines, or get none at all."""
    gang.agents[0].log(0, *(f"line {n}" for n in range(10)))
    end = ChunkReader.end

    def overtaken(reader: ChunkReader) -> int:
        found = end(reader)
        monkeypatch.setattr(ChunkReader, "end", end)
        gang.agents[0].log(1, "came meanwhile")
        return found

    monkeypatch.setattr(ChunkReader, "end", overtaken)
    page = ann.http.get(f"/api/v1/jobs/{gang.job_id}/logs?tail=5&limit=5").json()
    assert [line["n"] for line in page["lines"]] == [5, 6, 7, 8, 9]
    assert page["next"] == page["total"] == 10
