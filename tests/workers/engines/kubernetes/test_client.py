"""A failed request is reported in one line, with the place and the problem."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from tests.workers.engines.kubernetes.samples import NOW, node, pod, running, settings, spec, waiting

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_workers.engines.kubernetes.client import Cluster, Refused
from weft_workers.engines.kubernetes.details import Details
from weft_workers.engines.kubernetes.launching import Launcher
from weft_workers.engines.kubernetes.stopping import Stopper

Json = dict[str, Any]


class Answering:
    """A server with one answer to everything."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def refuse(self, status: int, message: str) -> None:
        self.status = status
        self.body = json.dumps({"kind": "Status", "message": message, "reason": "Because", "code": status}).encode()


@pytest.fixture
def server() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.server.shutdown()
    made.server.server_close()


def cluster(folder: Path, url: str, timeout: float = 30) -> Cluster:
    place = folder / "kubeconfig"
    place.write_text(
        json.dumps(
            {
                "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": url}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
                "users": [{"name": "me", "user": {"token": "a-secret-token"}}],
            }
        )
    )
    return Cluster("kube", settings(kubeconfig=place, timeout=timeout))


def unreachable(asked: Cluster) -> str:
    with pytest.raises(EngineUnreachable) as told:
        asked.get("read_namespaced_pod", "x", "y")
    assert "a-secret-token" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (401, "Unauthorized", "it does not accept Weft's credentials (401): are they outdated?"),
        (
            403,
            'pods is forbidden: User "weft" cannot list resource "pods" in API group "" at the cluster scope',
            'a right is missing: pods is forbidden: User "weft" cannot list resource "pods" in API group "" at the '
            "cluster scope",
        ),
        (429, "too many requests", "too many requests (429)"),
        (500, "etcdserver: request timed out", "etcdserver: request timed out (500)"),
        (503, "apiserver not ready", "apiserver not ready (503)"),
    ],
)
def test_answers_that_tell_nothing(server: Answering, tmp_path: Path, status: int, message: str, words: str) -> None:
    server.refuse(status, message)
    assert unreachable(cluster(tmp_path, server.url)) == f"engine kube: Kubernetes at {server.url}: {words}"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422])
def test_answers_that_say_no(server: Answering, tmp_path: Path, status: int) -> None:
    server.refuse(status, "no, because")
    with pytest.raises(Refused, match="no, because") as told:
        cluster(tmp_path, server.url).get("read_namespaced_pod", "x", "y")
    assert (told.value.status, told.value.reason) == (status, "Because")


def test_what_is_no_api_server(server: Answering, tmp_path: Path) -> None:
    server.body = b"<html>log in</html>"
    assert "its answer is no JSON; is this really the API server's address?" in unreachable(
        cluster(tmp_path, server.url)
    )


def test_nobody_there(tmp_path: Path) -> None:
    assert unreachable(cluster(tmp_path, "http://127.0.0.1:9")).endswith(": can't connect: Connection refused")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert unreachable(cluster(tmp_path, address, timeout=2)).endswith(": no answer within 2 s")
    assert unreachable(cluster(tmp_path, "http://no-such-host.invalid")).endswith(": its name can't be resolved")


# --- what a refusal means for a launch ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "kind", "words"),
    [
        (
            403,
            'pods "weft-job-1-1-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
            EngineUnreachable,
            "waiting for quota on engine kube: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        ),
        (
            403,
            'pods "weft-job-1-1-1" is forbidden: violates PodSecurity "restricted:latest": seccompProfile',
            LaunchRefused,
            'engine kube refuses the learners: violates PodSecurity "restricted:latest": seccompProfile',
        ),
        (
            403,
            'admission webhook "policy.example" denied the request: no latest tags',
            LaunchRefused,
            'engine kube refuses the learners: admission webhook "policy.example" denied the request: no latest tags',
        ),
        (
            422,
            'Pod "weft-job-1-1-1" is invalid: spec.nodeSelector: Invalid value: "a b"',
            LaunchRefused,
            'engine kube refuses the learners: spec.nodeSelector: Invalid value: "a b"',
        ),
        (
            403,
            'secrets "x" is forbidden: unable to create new content in namespace y because it is being terminated',
            EngineUnreachable,
            "being terminated",
        ),
        (
            403,
            'pods "weft-job-1-1-1" is forbidden: error looking up service account y/default: serviceaccount "default" '
            "not found",
            EngineUnreachable,
            'serviceaccount "default" not found',
        ),
        (404, 'namespaces "y" not found', EngineUnreachable, 'namespaces "y" not found'),
    ],
)
def test_what_a_refusal_means(status: int, message: str, kind: type[Exception], words: str) -> None:
    launcher = Launcher("kube", settings(), "weft", Cluster("kube", settings()))
    found = launcher.refused(Refused(status, "Forbidden", message), spec())
    assert type(found) is kind
    assert words in str(found)


# --- details ------------------------------------------------------------------------------------------------------


class Counting:
    """Stands in for a cluster: counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    def list(self, call: str, *args: str, **options: str) -> tuple[list[Json], str]:
        self.asked.append(options["field_selector"])
        if self.down:
            raise EngineUnreachable("away")
        return [{"type": "Warning", "reason": "FailedMount", "message": "no claim", "lastTimestamp": ""}], "1"

    def get(self, call: str, *args: str, **options: str) -> Json:
        self.asked.append(args[1])
        if args[1] == "v1beta2":
            raise Refused(404, "NotFound", "no such version")
        conditions = [
            {"type": "PodsReady", "status": "False", "message": "Not all pods are ready or succeeded"},
            {"type": "QuotaReserved", "status": "False", "message": "insufficient quota for cpu"},
        ]
        return {"status": {"conditions": conditions}}


def waits(n: int) -> Json:
    found = pod(waiting("ContainerCreating"), phase="Pending")
    found["metadata"]["uid"] = f"uid-{n}"
    return found


def test_events_are_read_of_a_few_pods_and_not_often() -> None:
    there = Counting()
    details = Details(cast(Cluster, there), "team")
    pods = [waits(n) for n in range(12)]
    uids = {waiting_pod["metadata"]["uid"] for waiting_pod in pods}
    for told in (5, 10, 12, 12):
        details.round(uids)
        said = [details.event(waiting_pod, NOW) for waiting_pod in pods]
        assert said.count("FailedMount: no claim") == told
    assert len(there.asked) == 12
    details.round({"uid-1"})
    assert len(details._known) == 1, "what is gone is forgotten"


def test_no_event_is_no_trouble() -> None:
    there = Counting()
    there.down = True
    details = Details(cast(Cluster, there), "team")
    details.round({"uid-1"})
    assert details.event(waits(1), NOW) == ""


def test_kueues_own_words() -> None:
    details = Details(cast(Cluster, Counting()), "team")
    details.round({"uid-1"})
    found = waits(1)
    found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-a"
    assert details.held(found) == "waiting in Kueue's queue team-a: insufficient quota for cpu"


# --- what a stop does with a pod that is being deleted ------------------------------------------------------------


@pytest.mark.parametrize(
    ("deleted", "grace", "ready", "asked"),
    [
        ((10.0, 30.0), 20.0, "True", None),  # the rest of the same grace
        ((10.0, 30.0), 300.0, "True", None),  # never longer
        ((10.0, 30.0), 5.0, "True", 15),  # from the first request on
        ((10.0, 30.0), 0.0, "True", 10),
        ((40.0, 30.0), 0.0, "True", None),  # its kubelet has a moment
        ((151.0, 30.0), 0.0, "True", 0),  # but not for ever
        ((10.0, 30.0), 20.0, "Unknown", None),  # the grace is not over
        ((31.0, 30.0), 0.0, "Unknown", 0),
        ((10.0, 30.0), 0.0, "Unknown", 0),
    ],
)
def test_a_pod_that_is_being_deleted(deleted: tuple[float, float], grace: float, ready: str, asked: int | None) -> None:
    there = Deleting()
    stopper = Stopper(cast(Cluster, there), {}, lambda name: node(name, ready=ready, ago=100), kueue=False)
    stopper.end(pod(running(), deleted=deleted), NOW, timedelta(seconds=grace))
    assert there.graces == ([] if asked is None else [asked])


def test_what_does_not_run_is_not_given_time() -> None:
    for found, asked in ((pod(running()), 60), (pod(waiting("ContainerCreating"), phase="Pending"), 1), (pod(), 1)):
        there = Deleting()
        stopper = Stopper(cast(Cluster, there), {}, lambda name: None, kueue=False)
        stopper.end(found, NOW, timedelta(seconds=59.2))
        assert there.graces == [asked]


class Deleting:
    """Stands in for a cluster: notes what grace each deletion asked for."""

    def __init__(self) -> None:
        self.graces: list[int] = []

    def get(self, call: str, *args: str, body: Json) -> Json:
        assert call == "delete_namespaced_pod"
        assert body["preconditions"] == {"uid": "uid-1"}
        self.graces.append(body["gracePeriodSeconds"])
        return {}
