"""Saved views and usage: the commands against the double, the library against the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api.conftest import Api, Person, api, api_settings
from tests.cli.conftest import Weft
from tests.cli.double import Answer, Double, as_json, job

from weft import Client, errors

__all__ = ["api", "api_settings"]  # fixtures

QUERY = "state=FAILED&state=HALTED&label=team%3Dvision&metric=loss%3C0.3&param=lr%3D0.1&user=ada&engine=gpu&since=7d"
VIEW = {
    "name": "Failed this week",
    "query": f"{QUERY}&sort=-metric:loss:min&col=labels&col=metric:loss&col=param:batch&group=team",
    "user": "ada",
    "updated_at": "2026-01-31T08:00:00Z",
}
USAGE = {
    "since": "2026-01-30T08:00:00Z",
    "until": "2026-01-31T08:00:00Z",
    "engines": [],
    "people": [
        {"project": "vision", "user": "ada", "attempts": 12, "cpu_hours": 96.5, "gpu_hours": 24.0},
        {"project": "speech", "user": "ben", "attempts": 1, "cpu_hours": 1.0, "gpu_hours": 3.0},
        {"project": "vision", "user": "eve", "attempts": 2, "cpu_hours": 3.5, "gpu_hours": 1.0},
    ],
}


@pytest.fixture
def views(double: Double) -> Double:
    double.on("GET", "views", as_json({"views": [VIEW]}))
    return double


def test_views_are_listed_shown_and_deleted(weft: Weft, views: Double) -> None:
    assert "Failed this week" in weft("views", "list").out
    lines = [line.split() for line in weft("views", "show", "Failed this week").out.splitlines()]
    assert ["state", "HALTED"] in lines
    assert ["metric", "loss<0.3"] in lines
    views.on("DELETE", "views/Failed%20this%20week", Answer(204))
    assert "deleted" in weft("views", "delete", "Failed this week").err
    unknown = weft("views", "show", "Best")
    assert unknown.code == 4
    assert "no view 'Best': there are Failed this week" in unknown.err


def test_a_view_filters_and_sorts_the_list_of_jobs(weft: Weft, views: Double) -> None:
    views.on("GET", "jobs", as_json({"jobs": [job()], "next_cursor": None}))
    assert weft("list", "--view", "Failed this week").code == 0
    asked = {key: values for key, values in views.seen[-1].query.items() if key not in ("limit", "cursor")}
    assert asked == {
        "state": ["FAILED", "HALTED"],
        "label": ["team=vision"],
        "metric": ["loss<0.3"],
        "param": ["lr=0.1", "batch"],
        "user": ["ada"],
        "engine": ["gpu"],
        "since": ["7d"],
        "sort": ["-metric:loss:min"],
    }
    weft("list", "--view", "Failed this week", "--state", "COMPLETED", "--label", "a=b", "--sort", "name")
    more = views.seen[-1].query
    assert (more["state"], more["label"], more["sort"]) == (["COMPLETED"], ["team=vision", "a=b"], ["name"])


def test_usage_by_user_and_by_project(weft: Weft, double: Double) -> None:
    double.on("GET", "usage", as_json(USAGE))
    lines = [line.split() for line in weft("usage", "--from", "7d", "--to", "1d", "--all-projects").out.splitlines()]
    assert lines[0] == ["PROJECT", "USER", "ATTEMPTS", "CPU-HOURS", "GPU-HOURS"]
    assert lines[1] == ["vision", "ada", "12", "96.5", "24.0"]
    assert double.seen[-1].query == {"since": ["7d"], "until": ["1d"], "everybody": ["true"]}
    assert weft("usage", "--by", "project", "--csv").out.splitlines() == [
        "project,since,until,attempts,cpu_hours,gpu_hours",
        "vision,2026-01-30T08:00:00+00:00,2026-01-31T08:00:00+00:00,14,100.0000,25.0000",
        "speech,2026-01-30T08:00:00+00:00,2026-01-31T08:00:00+00:00,1,1.0000,3.0000",
    ]
    assert weft("usage", "--csv").out.splitlines()[1].startswith("vision,ada,2026-01-30")


# --- the API itself ---


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def library(api: Api, ann: Person) -> Iterator[Client]:
    with Client(api.url, ann.token) as made:
        yield made


def test_the_library_keeps_views_and_reads_usage(library: Client) -> None:
    saved = library.views.save("Failed", "state=FAILED")
    assert library.views.list() == [saved]
    assert library.views.get("Failed").search == {"state": ["FAILED"]}
    library.views.delete("Failed")
    with pytest.raises(errors.NotFound, match="none yet"):
        library.views.get("Failed")
    usage = library.usage("7d", "1d")
    assert usage.users == ()
    assert usage.since is not None
    assert usage.until is not None
    assert round((usage.until - usage.since).total_seconds() / 3600) == 144
    with pytest.raises(errors.WeftError, match="since"):
        library.usage("1d", "7d")
