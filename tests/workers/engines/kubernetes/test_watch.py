"""One list and one watch, through everything that may happen to them. The server is scripted: see ``scripted``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.engines.bench import until
from tests.workers.engines.kubernetes.samples import settings
from tests.workers.engines.kubernetes.scripted import END, Scripted

from weft_core.engine import EngineUnreachable
from weft_workers.engines.kubernetes import watch
from weft_workers.engines.kubernetes.client import Cluster
from weft_workers.engines.kubernetes.watch import Mirror

Json = dict[str, Any]
PATIENCE = 300.0
TIMEOUT = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Scripted]:
    made = Scripted(tmp_path)
    yield made
    made.close()


@pytest.fixture
def deleted() -> list[str]:
    return []


@pytest.fixture
def mirror(server: Scripted, deleted: list[str]) -> Iterator[Mirror]:
    made = Mirror(
        Cluster("kube", settings(kubeconfig=server.kubeconfig, timeout=TIMEOUT)),
        "pods",
        "list_namespaced_pod",
        "learners",
        trim=lambda found: {**found, "trimmed": True},
        on_deleted=lambda gone: deleted.append(gone["metadata"]["uid"]),
        options={"label_selector": "a=b"},
    )
    yield made
    made.close()


def pod(uid: str, version: int = 1, phase: str = "Pending") -> Json:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)}, "status": {"phase": phase}}


def phases(mirror: Mirror) -> dict[str, str]:
    return {found["metadata"]["uid"]: found["status"]["phase"] for found in mirror.objects(PATIENCE)}


def wait(condition: Callable[[], object]) -> None:
    until(condition, PATIENCE)


def test_a_list_and_then_what_changes(server: Scripted, mirror: Mirror, deleted: list[str]) -> None:
    server.objects = [pod("a"), pod("b")]
    assert phases(mirror) == {"a": "Pending", "b": "Pending"}
    assert all(found["trimmed"] for found in mirror.objects(PATIENCE))
    server.send("MODIFIED", pod("a", 101, "Running"))
    server.send("ADDED", pod("c", 102))
    server.send("DELETED", pod("b", 103))
    wait(lambda: phases(mirror) == {"a": "Running", "c": "Pending"})
    assert deleted == ["b"]
    assert server.watches == ["100"]
    assert [query["labelSelector"] for query in server.lists] == ["a=b"]


def test_a_long_list_comes_in_pages(server: Scripted, mirror: Mirror) -> None:
    server.objects, server.page = [pod(f"p{n}") for n in range(7)], 3
    assert len(phases(mirror)) == 7
    assert [query.get("continue") for query in server.lists] == [None, "3", "6"]


@pytest.mark.parametrize("end", [END, None], ids=["ended", "cut off"])
def test_a_watch_goes_on_where_it_was(server: Scripted, mirror: Mirror, end: object) -> None:
    assert phases(mirror) == {}
    server.send("ADDED", pod("a", 105))
    wait(lambda: phases(mirror))
    server.bookmark("170")
    server.break_watch() if end is None else server.break_watch(end)
    wait(lambda: len(server.watches) == 2)
    assert server.watches == ["100", "170"]
    server.send("MODIFIED", pod("a", 171, "Running"))
    wait(lambda: phases(mirror) == {"a": "Running"})
    assert len(server.lists) == 1, "nothing was listed anew"


@pytest.mark.parametrize("how", ["status", "event"])
def test_what_is_too_old_is_listed_anew(server: Scripted, mirror: Mirror, deleted: list[str], how: str) -> None:
    server.objects = [pod("a"), pod("b")]
    phases(mirror)
    server.objects, server.version = [pod("a", 500, "Running"), pod("c", 501)], "600"
    if how == "status":
        server.refuse = 410
        server.break_watch()
    else:
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    wait(lambda: phases(mirror) == {"a": "Running", "c": "Pending"})
    assert deleted == ["b"], "an unseen deletion is reported, too"
    wait(lambda: server.watches == ["100", "600"])


def test_a_line_that_is_no_event_does_no_harm(server: Scripted, mirror: Mirror) -> None:
    server.objects = [pod("a")]
    phases(mirror)

    def watches_anew_after(line: str) -> None:
        began = len(server.watches)
        server.send_line(line)
        wait(lambda: len(server.watches) > began)

    for line in ("<html>", '{"type": "ADDED"}', "[]", '{"type": "ERROR", "object": {"code": 500, "message": "oh"}}'):
        watches_anew_after(line)
    server.send("ADDED", pod("b", 300))
    wait(lambda: phases(mirror) == {"a": "Pending", "b": "Pending"})


def test_without_a_watch_nothing_is_known_for_long(server: Scripted, mirror: Mirror) -> None:
    server.objects = [pod("a")]
    phases(mirror)
    server.refuse = 503
    server.break_watch()
    assert phases(mirror) == {"a": "Pending"}, "for a moment it is"

    wait(lambda: _error(mirror) == f"engine kube: Kubernetes at {server.url}: no watch (503)")
    assert mirror.known(), "what was known is kept, for those whom it may help"
    server.refuse = 0
    assert phases(mirror) == {"a": "Pending"}, "it comes back within the patience"
    assert len(server.lists) == 1


def test_a_server_that_hangs(server: Scripted, mirror: Mirror) -> None:
    with server.freeze():
        began = time.monotonic()
        with pytest.raises(EngineUnreachable):
            mirror.objects(0.5)
        assert time.monotonic() - began < 30
        wait(lambda: _error(mirror) == f"engine kube: Kubernetes at {server.url}: no answer within {TIMEOUT} s")
    assert phases(mirror) == {}


def _error(mirror: Mirror, patience: float = 0.1) -> str:
    try:
        mirror.objects(patience)
    except EngineUnreachable as error:
        return str(error)
    return ""


def test_what_was_read_live_counts_at_once(server: Scripted, mirror: Mirror, deleted: list[str]) -> None:
    server.objects = [pod("a", 10)]
    phases(mirror)
    mirror.note([pod("b", 20), pod("a", 21, "Running")])
    assert phases(mirror) == {"a": "Running", "b": "Pending"}
    server.send("MODIFIED", pod("a", 19, "Pending"))  # older than what was read
    server.send("MODIFIED", pod("b", 22, "Running"))
    wait(lambda: phases(mirror) == {"a": "Running", "b": "Running"})
    mirror.note([pod("b", 20)])
    assert phases(mirror)["b"] == "Running"
    mirror.gone(["a", "unheard of"])
    server.send("MODIFIED", pod("a", 30))  # was on its way
    server.send("ADDED", pod("c", 31))
    wait(lambda: "c" in phases(mirror))
    assert set(phases(mirror)) == {"b", "c"}
    server.send("DELETED", pod("a", 32))
    server.send("DELETED", pod("c", 33))
    wait(lambda: set(phases(mirror)) == {"b"})
    mirror.note([pod("c", 31)])  # read before it went
    assert set(phases(mirror)) == {"b"}
    assert deleted == ["c"], "a caller that notes a deletion itself gets no report of it"


def test_a_list_that_began_earlier_takes_nothing_away(server: Scripted, mirror: Mirror) -> None:
    server.objects = [pod("a")]
    phases(mirror)
    with server.freeze():
        server.break_watch()
        server.refuse = 410
        time.sleep(0.5)
        mirror.note([pod("new", 900)])
        mirror.gone(["a"])
    wait(lambda: len(server.lists) >= 1 and len(server.watches) >= 2)
    wait(lambda: _current(mirror))
    assert "a" not in phases(mirror)


def _current(mirror: Mirror) -> bool:
    return not _error(mirror, 0)


def test_memory_is_bounded(server: Scripted, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    phases(mirror)
    for n in range(200):
        mirror.note([pod(f"p{n}", n)])
        server.send("DELETED", pod(f"p{n}", 1000 + n))
    wait(lambda: not phases(mirror))
    monkeypatch.setattr(watch, "_TOMBSTONES", 0.0)
    server.break_watch(END)
    wait(lambda: len(server.watches) >= 2 and not mirror._dead)
    assert (mirror._objects, mirror._noted, mirror._dead) == ({}, {}, {})


def test_nothing_is_asked_before_somebody_wants_to_know(server: Scripted, mirror: Mirror) -> None:
    assert mirror.known() == []
    mirror.gone(["x"])
    assert mirror._thread is None
    assert not server.lists
