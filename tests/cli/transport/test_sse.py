"""Following: each line once and in order, even if the connection breaks."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.double import DROP, Answer, Double, Seen, as_json, events, job_event, line, line_events, problem

from weft import errors
from weft.client import Client
from weft.models import Event, LogLine, StateChange
from weft.transport.http import Transport
from weft.transport.sse import Follower, ServerEvent, parse_events

ID = "job-4k9x2m7qd1ze"
FOLLOW = f"jobs/{ID}/logs/follow"
END = (None, "end", {"state": "COMPLETED", "reason": ""})


def follower(transport: Transport, **options: Any) -> Follower:
    return Follower(transport, f"/{FOLLOW}", sleep=lambda seconds: None, **options)


def numbers(items: list[ServerEvent]) -> list[int]:
    return [item.id for item in items if item.id is not None]


Reply = Callable[[int, list[tuple[int | None, str, object]]], Answer]
"""Makes an answer from the number of answers before it and the events that it has to send."""


def log_server(total: int, reply: Reply) -> Callable[[Seen], Answer]:
    """Serves lines 0 to ``total`` from where the client asks."""
    count = itertools.count()

    def serve(seen: Seen) -> Answer:
        first = int(seen.headers["last-event-id"]) + 1 if "last-event-id" in seen.headers else 0
        return reply(next(count), [*line_events(range(first, total)), END])

    return serve


def test_a_stream_is_read_to_its_end(double: Double, transport: Transport) -> None:
    double.on("GET", FOLLOW, events(*line_events(range(3)), END))
    got = list(follower(transport))
    assert [item.name for item in got] == ["line", "line", "line", "end"]
    assert double.seen[0].headers["accept"] == "text/event-stream"


def test_every_cut_of_the_stream_loses_and_doubles_nothing(double: Double, transport: Transport) -> None:
    """The connection breaks at each single byte of the stream, in turn."""

    def first_cut(cut: int) -> Reply:
        return lambda count, sent: events(*sent, cut=cut if count == 0 else None)

    whole = len(events(*line_events(range(3)), END).body)
    for cut in range(whole):
        double.on("GET", FOLLOW, log_server(3, first_cut(cut)))
        assert numbers(list(follower(transport))) == [0, 1, 2], f"cut after {cut} of {whole} bytes"


def test_a_bad_network_loses_and_doubles_nothing(double: Double, transport: Transport) -> None:
    chance = random.Random(7)

    def reply(count: int, sent: list[tuple[int | None, str, object]]) -> Answer:
        kind = chance.choice(["cut", "cut", "drop", "503", "closed"])
        if len(sent) < 40:
            return events(*sent)
        if kind == "drop":
            return DROP
        if kind == "503":
            return problem(503, "database_unavailable")
        if kind == "closed":
            return events(*sent[: chance.randrange(20)])
        return events(*sent, cut=chance.randrange(1500))

    double.on("GET", FOLLOW, log_server(300, reply))
    assert numbers(list(follower(transport))) == list(range(300))
    assert len(double.seen) > 10


def test_lines_that_a_server_sends_again_are_dropped(double: Double, transport: Transport) -> None:
    double.on("GET", FOLLOW, events(*line_events(range(5)), cut=10_000), events(*line_events(range(2, 8)), END))
    assert numbers(list(follower(transport))) == list(range(8))
    assert double.seen[1].headers["last-event-id"] == "4"


def test_following_gives_up_after_its_patience(double: Double, transport: Transport) -> None:
    double.on("GET", FOLLOW, DROP)
    clock = iter(range(1000)).__next__
    troubles: list[errors.Unavailable] = []
    with pytest.raises(errors.Unavailable):
        list(follower(transport, patience=5, clock=clock, on_trouble=troubles.append))
    assert len(troubles) == 5


def test_a_refusal_ends_following(double: Double, transport: Transport) -> None:
    double.on("GET", FOLLOW, events(*line_events(range(2)), cut=10_000), problem(404, "not_found", "deleted"))
    got: list[ServerEvent] = []
    with pytest.raises(errors.NotFound):
        got.extend(follower(transport))
    assert numbers(got) == [0, 1]


def test_texts_with_any_character_come_through(double: Double, client: Client) -> None:
    texts = [
        "\u2028 line separator \x85 \x0b \x1c",
        "{json: no}",
        "data: x",
        "ünï ☃ 🧵",
        "tab\tand\rreturn",
        "x" * 100_000,
        " ",
    ]
    lines = [(n, "line", line(n, text)) for n, text in enumerate(texts)]
    double.on("GET", FOLLOW, events(*lines, END))
    got = [item.text for item in client.jobs.follow_logs(ID) if isinstance(item, LogLine)]
    assert got == texts


def test_events_are_parsed_whatever_the_chunks() -> None:
    stream = (
        b': hello\r\n\r\nid: 1\r\nevent: line\r\ndata: {"a":\r\ndata: 1}\r\n\r\nid: x\rdata: 7\r\revent: half\ndata: {}'
    )
    for size in range(1, len(stream)):
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert list(parse_events(chunks)) == [
            ServerEvent(1, "line", {"a": 1}),
            ServerEvent(None, "message", {"value": 7}),
        ]


def test_states_are_told_once_through_reconnections(double: Double, client: Client) -> None:
    running = (None, "state", {"state": "PROCESSING", "reason": "runs"})
    double.on(
        "GET",
        FOLLOW,
        events(running, *line_events(range(2)), cut=10_000),
        events(running, *line_events(range(2, 3)), END),
    )
    got = list(client.jobs.follow_logs(ID))
    assert [item.n if isinstance(item, LogLine) else item for item in got] == [
        StateChange("PROCESSING", "runs"),
        0,
        1,
        2,
        StateChange("COMPLETED", "", final=True),
    ]


def test_after_a_tail_following_goes_on_where_the_tail_ended(double: Double, client: Client) -> None:
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": [line(8), line(9)], "next": 10, "end": False}))
    double.on("GET", FOLLOW, DROP, events(*line_events(range(10, 12)), END))
    got = [item.n for item in client.jobs.follow_logs(ID, tail=2) if isinstance(item, LogLine)]
    assert got == [8, 9, 10, 11]
    for seen in double.requests("GET", FOLLOW):
        assert seen.query["from"] == ["10"]
        assert "tail" not in seen.query


def test_ranges_are_paged(double: Double, client: Client) -> None:
    def page(seen: Seen) -> Answer:
        first = int(seen.query.get("from", ["0"])[0])
        last = min(first + 4, 10)
        return as_json({"lines": [line(n) for n in range(first, last)], "next": last, "end": last == 10})

    double.on("GET", f"jobs/{ID}/logs", page)
    assert [item.n for item in client.jobs.logs(ID, learner=2, attempt=1, since="5m")] == list(range(10))
    for seen in double.seen:
        assert (seen.query["learner"], seen.query["attempt"], seen.query["since"]) == (["2"], ["1"], ["5m"])


def event(number: int, state: str | None = None, kind: str = "state") -> tuple[int, str, dict[str, Any]]:
    return job_event(number, state, f"event {number}", kind)


def test_watching_tells_the_end_after_the_last_line(double: Double, client: Client) -> None:
    double.on("GET", f"jobs/{ID}/events", events(event(1, "QUEUED"), event(2, "COMPLETED"), END))
    double.on("GET", FOLLOW, events(*line_events(range(200)), END))
    got = list(client.jobs.watch(ID))
    assert [item.n for item in got if isinstance(item, LogLine)] == list(range(200))
    told = [item for item in got if not isinstance(item, StateChange)]
    assert isinstance(told[-1], Event)
    assert told[-1].state == "COMPLETED"
    assert [item.id for item in got if isinstance(item, Event)] == [1, 2]


def test_watching_keeps_the_order_of_events_of_a_resumed_job(double: Double, client: Client) -> None:
    double.on(
        "GET",
        f"jobs/{ID}/events",
        events(event(1, "HALTED"), event(2, "QUEUED"), event(3, None, "image"), event(4, "FAILED"), END),
    )
    double.on("GET", FOLLOW, events(END))
    got = [item.id for item in client.jobs.watch(ID) if isinstance(item, Event)]
    assert got == [1, 2, 3, 4]


def test_watching_hands_on_what_ends_it(double: Double, client: Client) -> None:
    double.on("GET", f"jobs/{ID}/events", problem(404, "not_found"))
    double.on("GET", FOLLOW, events(END))
    with pytest.raises(errors.NotFound):
        list(client.jobs.watch(ID))


def test_the_doubles_lines_are_json() -> None:
    body = events(*line_events([0])).body.decode()
    assert json.loads(body.splitlines()[2].removeprefix("data: ")) == line(0)
