"""Polls of followed logs: all of a project that are due at the same time together."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import update
from tests.api.conftest import Api, Attempted, Person
from tests.api.statements import counted

from weft_api.logs.polls import Asked, Polls, Seen
from weft_core.store.models import LogCursor

LOGS = 12


@pytest.fixture
def attempts(api: Api, ann: Person) -> list[Attempted]:
    found = [api.attempt(ann.submit()["id"]) for _ in range(LOGS)]
    for number, attempt in enumerate(found):
        attempt.agents[0].start()
        attempt.agents[0].log(0, f"first of {number}", "second")
        attempt.agents[0].log(1, f"third of {number}")
    return found


def look(api: Api, person: Person, *asked: Asked) -> list[Seen]:
    """Ask for all at the same time."""

    async def ask() -> list[Seen]:
        polls = Polls(api.context)
        return await asyncio.gather(*(polls.look(person.project_id, each) for each in asked))

    return asyncio.run(ask())


def texts(seen: Seen) -> list[bytes]:
    return [text for chunk in seen.chunks for text in chunk.texts()]


def test_many_logs_are_no_more_statements_than_one(api: Api, ann: Person, attempts: list[Attempted]) -> None:
    asked = [Asked(attempt.job_id, 0) for attempt in attempts]
    look(api, ann, asked[0])  # looks up the state of row-level security
    with counted(api) as found_few:
        look(api, ann, asked[0])
    with counted(api) as found_many:
        found = look(api, ann, *asked)
    assert found_many.transactions == found_few.transactions == 1
    # The confinement, the states, and the lines.
    assert len(found_many.statements) == len(found_few.statements) == 3, found_many
    for number, seen in enumerate(found):
        assert texts(seen) == [f"first of {number}".encode(), b"second", f"third of {number}".encode()]
        assert (seen.end, seen.far, seen.state[0]) == (3, False, "QUEUED")


def test_logs_without_news_cost_one_statement(api: Api, ann: Person, attempts: list[Attempted]) -> None:
    asked = [Asked(attempt.job_id, 3) for attempt in attempts]
    with counted(api) as found:
        seen = look(api, ann, *asked[:1])
    assert len(found.statements) <= 2, found  # the confinement, and the states
    assert (seen[0].chunks, seen[0].far, seen[0].end) == ([], False, 3)


def test_each_log_gets_what_it_asks_for(api: Api, ann: Person, bob: Person, attempts: list[Attempted]) -> None:
    first, second, third, fourth = (attempt.job_id for attempt in attempts[:4])
    attempts[1].agents[0].log(2, *["many"] * 1500)
    with api.context.database.transaction() as session:
        session.execute(update(LogCursor).where(LogCursor.job_id == third).values(archived=2))
    foreign = bob.submit()["id"]
    asked = {
        "the end only": Asked(first, None),
        "a part": Asked(first, 2),
        "the same log again": Asked(first, 0),
        "too many": Asked(second, 0),
        "in S3": Asked(third, 0),
        "not in S3": Asked(third, 2),
        "the middle of a chunk": Asked(fourth, 1),
        "another project's": Asked(foreign, 0),
        "deleted": Asked("job-unknown", 7),
    }
    found = dict(zip(asked, look(api, ann, *asked.values()), strict=True))
    assert {name for name, seen in found.items() if seen.far} == {"too many", "in S3", "the middle of a chunk"}
    assert {name: texts(seen) for name, seen in found.items() if seen.chunks} == {
        "a part": [b"third of 0"],
        "the same log again": [b"first of 0", b"second", b"third of 0"],
        "not in S3": [b"third of 2"],
    }
    assert {name: seen.end for name, seen in found.items() if seen.end != 3} == {
        "too many": 1503,
        "another project's": 0,
        "deleted": 0,
    }
    assert {name for name, seen in found.items() if seen.state[0] == "DELETED"} == {"another project's", "deleted"}


def test_a_log_of_many_chunks_is_read_in_parts(api: Api, ann: Person, attempts: list[Attempted]) -> None:
    agent = attempts[0].agents[0]
    for sequence in range(2, 100):
        agent.log(sequence, f"line {sequence}")
    position, parts = 0, 0
    while True:
        (seen,) = look(api, ann, Asked(attempts[0].job_id, position))
        if not seen.chunks:
            break
        assert seen.chunks[0].first_line == position
        position, parts = seen.chunks[-1].end, parts + 1
    assert position == seen.end == 101
    assert parts == 2
