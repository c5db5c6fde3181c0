"""``weft logs`` prints a log and searches it, and keeps terminals safe; ``weft events`` prints a job's history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Weft
from tests.cli.double import END, ID, Answer, Double, Seen, as_json, events, job, job_event, line, line_events, problem
from tests.cli.test_terminal import Terminal

from weft import errors
from weft.client import Client
from weft.models import Gap, LogLine
from weft.transport.http import Transport
from weft.ui.ansi import plain, shown

LOGS = f"jobs/{ID}/logs"
GAP = (6, "gap", {"from": 2, "to": 6, "lines": 5})


def pages(seen: Seen) -> Answer:
    """A log of ten lines, at most four at once, of a job that has not ended."""
    first = int(seen.query.get("from", ["0"])[0])
    if "tail" in seen.query:
        first = max(first, 10 - int(seen.query["tail"][0]))
    if "at" in seen.query:
        first = max(first, 3)
    last = min(first + 4, 10)
    return as_json(
        {"lines": [line(n) for n in range(first, last)], "first": first, "next": last, "total": 10, "end": False}
    )


@pytest.fixture
def client(double: Double, transport: Transport) -> Client:
    return Client(transport=transport)


@pytest.mark.parametrize(
    ("options", "numbers", "calls"),
    [
        ({}, range(10), 3),
        ({"tail": 6}, range(4, 10), 2),
        ({"at": "5m"}, range(3, 10), 2),
        ({"start": 5}, range(5, 10), 2),
        ({"start": 1, "end": 2}, range(1, 3), 1),
        ({"tail": 100, "end": 4}, range(5), 2),
    ],
)
def test_parts_are_read_to_their_end(
    double: Double, client: Client, options: dict[str, Any], numbers: range, calls: int
) -> None:
    double.on("GET", LOGS, pages)
    assert [item.n for item in client.jobs.logs(ID, **options)] == list(numbers)
    assert len(double.seen) == calls
    assert not any("tail" in seen.query or "at" in seen.query for seen in double.seen[1:]), "said once"


def test_a_gap_is_read_or_told(double: Double, client: Client) -> None:
    double.on("GET", f"{LOGS}/follow", events(*line_events(range(2)), GAP, *line_events(range(7, 10)), END))
    double.on("GET", LOGS, pages)
    assert [item.n for item in client.jobs.follow_logs(ID) if isinstance(item, LogLine)] == list(range(10))
    told = [item for item in client.jobs.follow_logs(ID, complete=False) if not isinstance(item, LogLine)]
    assert isinstance(told[0], Gap)
    assert (told[0].first, told[0].last, told[0].lines) == (2, 6, 5)


def test_a_connection_lost_behind_a_gap_is_taken_up_behind_it(double: Double, client: Client) -> None:
    double.on("GET", f"{LOGS}/follow", events(*line_events([0, 1]), GAP, cut=10_000), events(*line_events([7]), END))
    double.on("GET", LOGS, pages)
    assert [item.n for item in client.jobs.follow_logs(ID) if isinstance(item, LogLine)] == list(range(8))
    assert double.requests("GET", f"{LOGS}/follow")[1].headers["last-event-id"] == "6"


def match(n: int, *around: int, text: str = "loss nan", spans: Any = ((5, 8),)) -> dict[str, Any]:
    return {
        "line": line(n, text),
        "before": [line(number) for number in around if number < n],
        "after": [line(number) for number in around if number > n],
        "spans": spans,
    }


def test_what_is_found_is_shown_once(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job(learners=1)))
    double.on(
        "GET",
        f"{LOGS}/search",
        as_json({"matches": [match(4, 3, 5), match(5, 4, 6)], "next": 1000, "end": False}),
        as_json({"matches": [], "next": 2000, "end": False}),
        as_json({"matches": [match(2003, 2002, 2004)], "next": 2005, "end": True}),
    )
    done = weft("logs", ID, "--regex", "loss (nan|inf)", "-C", "1", "-n", "--from", "2", "--learner", "1")
    assert [row.strip() for row in done.out.splitlines()] == [
        "3- line 3",
        "4: loss nan",
        "5: loss nan",
        "6- line 6",
        "--",
        "2002- line 2002",
        "2003: loss nan",
        "2004- line 2004",
    ]
    asked = double.requests("GET", f"{LOGS}/search")
    assert [seen.query["from"] for seen in asked] == [["2"], ["1000"], ["2000"]]
    assert asked[0].query["q"] == ["loss (nan|inf)"]
    assert (asked[0].query["regex"], asked[0].query["context"], asked[0].query["case"]) == (["true"], ["1"], ["false"])
    double.on("GET", f"{LOGS}/search", as_json({"matches": [match(4)], "next": 10, "end": True}))
    told = json.loads(weft("logs", ID, "--search", "nan", "--json").out)
    assert (told["type"], told["line"]["n"], told["spans"]) == ("match", 4, [[5, 8]])
    double.on("GET", f"{LOGS}/search", as_json({"matches": [], "next": 10, "end": True}))
    assert "no line matches" in weft("logs", ID, "--search", "x").err


@pytest.mark.parametrize(
    "options",
    [
        ("--search", "x", "--regex", "y"),
        ("--search", ""),
        ("--search", "x", "--follow"),
        ("--regex", "x", "--tail", "3"),
        ("--follow", "--to", "9"),
        ("--search", "x", "--context", "21"),
    ],
)
def test_what_does_not_go_together_is_refused(double: Double, weft: Weft, options: tuple[str, ...]) -> None:
    assert weft("logs", ID, *options).code == 2
    assert not double.seen


def test_a_bad_pattern_is_told_in_one_line(double: Double, client: Client) -> None:
    detail = "query.q: not a regular expression: missing ): ("
    double.on("GET", f"{LOGS}/search", problem(400, "invalid_request", detail))
    with pytest.raises(errors.ApiError, match="missing"):
        list(client.jobs.search_logs(ID, "(", regex=True))


def test_logs_are_told_apart_and_filtered(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    lines = [line(0, "a [bold]b[/]", 1), line(1, "\x1b[31mred", 2)]
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": lines, "next": 2, "end": True}))
    done = weft("logs", ID, "--learner", "2", "--attempt", "1", "--tail", "5", "--since", "5m")
    assert done.out == "[1] a [bold]b[/]\n[2] red\n", "what goes into a pipe has no control sequences"
    asked = double.seen[-1].query
    assert (asked["learner"], asked["attempt"], asked["tail"], asked["since"]) == (["2"], ["1"], ["5"], ["5m"])
    stamped = weft("logs", ID, "--timestamps").out.splitlines()
    assert stamped[0].endswith("[1] a [bold]b[/]")
    assert stamped[0][4] == "-"
    assert json.loads(weft("logs", ID, "--json").out.splitlines()[1])["learner"] == 2


def test_the_log_of_one_learner_has_no_tags(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job(learners=1)))
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": [line(0, "hello")], "next": 1, "end": True}))
    assert weft("logs", ID).out == "hello\n"
    double.on("GET", f"jobs/{ID}/logs", as_json({"lines": [], "next": 1, "end": True}))
    done = weft("logs", ID, "--learner", "7")
    assert (done.out, done.err) == ("", f"{ID} (PROCESSING) has no such line yet\n")


def test_events(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    happened = [job_event(1, "QUEUED", "submitted [x]")[2], job_event(2, "PENDING", "starting 2 learners")[2]]
    double.on("GET", f"jobs/{ID}/events", as_json({"events": happened}))
    out = weft("events", ID).out
    assert "submitted [x]" in out
    assert "PENDING" in out
    assert [event["id"] for event in json.loads(weft("events", ID, "--json").out)] == [1, 2]
    double.on(
        "GET", f"jobs/{ID}/events", events(job_event(1, "QUEUED", "submitted"), job_event(2, "COMPLETED", "done"), END)
    )
    assert [row.split()[-2] for row in weft("events", ID, "-f").out.splitlines()] == ["QUEUED", "COMPLETED"]


NOISE = "\x1b]0;title\x07\x1b[2J\x1b[3A\x1b[31mred\x1b[0m\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b[?1049h\x1bc\x00\x9b5A!"


def test_control_sequences_have_no_power() -> None:
    assert shown(NOISE, colours=True) == "\x1b[31mred\x1b[0mlink\u2400!\x1b[0m"
    assert shown(NOISE, colours=False) == "redlink\u2400!"
    assert plain(NOISE) == "redlink\x00!"
    assert shown(" 10%\r 50%\r100%\r", colours=False) == "100%"
    assert shown("tab\tö 🧵 \u2028", colours=False) == "tab\tö 🧵 \u2028"
    assert shown("\x1b]no end, \x1b[3é nor this", colours=True) == "no end, 3é nor this"


@given(st.text(alphabet="\x00\x07\x1b\x9b\x9d[]()P^_\\;0123?mHJAh \r\tx\x9c", max_size=40), st.booleans())
def test_nothing_but_colours_comes_through(text: str, colours: bool) -> None:
    left = shown(text, colours=colours)
    for colour in ("\x1b[" + rest for rest in left.split("\x1b[")[1:]):
        assert colour[2:].lstrip("0123456789;:").startswith("m")
    assert left.count("\x1b") == left.count("\x1b[")
    assert colours or "\x1b" not in left
    assert not set(left) & set("\x00\x07\x08\r\x9b\x9c\x9d")


@pytest.mark.slow
def test_in_a_terminal(double: Double, tmp_path: Path) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    noisy = {"lines": [line(0, NOISE), line(1, "plain", 2)], "first": 0, "next": 2, "total": 2, "end": True}
    double.on("GET", LOGS, as_json(noisy))
    terminal = Terminal(double, tmp_path, "logs", ID, "-n")
    assert terminal.end() == 0
    assert "\x1b[36m[1]\x1b[0m \x1b[31mred\x1b[0mlink\u2400!" in terminal.output
    assert "\x1b[2m      1\x1b[0m \x1b[33m[2]\x1b[0m plain" in terminal.output
    assert "\x1b[2J" not in terminal.output
    terminal = Terminal(double, tmp_path, "logs", ID, "--json")
    assert terminal.end() == 0
    assert [json.loads(record)["text"] for record in terminal.output.splitlines()] == [NOISE, "plain"]
    assert not set(terminal.output) & set("\x00\x07\x1b\x9b")
    double.on("GET", f"{LOGS}/search", as_json({"matches": [match(4)], "next": 10, "end": True}))
    terminal = Terminal(double, tmp_path, "logs", ID, "--search", "nan")
    assert terminal.end() == 0
    assert "loss \x1b[1;31mnan\x1b[0m" in terminal.output
    double.on("GET", f"{LOGS}/follow", events(*line_events(range(2)), GAP, *line_events([7]), END))
    terminal = Terminal(double, tmp_path, "logs", ID, "--follow", "--learner", "1", columns=120, NO_COLOR="1")
    terminal.end()
    assert "5 lines came too fast for this terminal" in terminal.output
    assert f"weft logs {ID} --from 2 --to 6 --learner 1" in terminal.output
    assert "line 7" in terminal.output


def test_a_log_that_was_removed_is_not_called_empty(weft: Weft, double: Double) -> None:
    removed = {"logs": "2026-01-31T08:00:00Z"}
    double.on("GET", f"jobs/{ID}", as_json(job(state="COMPLETED") | {"removed": removed}))
    empty: dict[str, Any] = {"lines": [], "first": None, "next": 12, "total": 12, "removed": 12, "end": True}
    double.on("GET", LOGS, as_json(empty))
    double.on("GET", f"{LOGS}/search", as_json({"matches": [], "next": 12, "end": True}))
    for options in ((), ("--search", "loss")):
        printed = weft("logs", ID, *options)
        text = printed.out + printed.err
        assert "its log was removed on 2026-01-31" in text
        assert "the project no longer keeps it" in text
