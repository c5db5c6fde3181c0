"""Learners that fail in their pods, and jobs that can't start: each with a reason that its user can act on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.kubernetes.stack import KubeStack, outcomes, starts, when

import weft


@contextmanager
def begin(on_kube: KubeStack, folder: Path) -> Iterator[dict[str, weft.Job]]:
    """The jobs of the tests below, which begin with the stack."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Empty) as registry:  # the nodes share this machine's network
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        yield {
            # The first, as the engine lets a pull fail for a minute.
            "no such image": custom(on_kube, f"127.0.0.1:{registry.server_port}/nobody/nothing:1"),
            "no registry": custom(on_kube, "registry.invalid/nobody/nothing:1"),
            "no name": custom(on_kube, "registry.invalid/Not_An_Image"),
            "no class": on_kube.train("true", profile="unknown-class"),
            "one of two": on_kube.train('[ "$LEARNER_ID" = 1 ] && sleep 600; echo last words; exit 7', learners=2),
            "memory": on_kube.train("python hog.py"),
            "storage": on_kube.train("head -c 64M /dev/zero > big; sleep 600", storage="20 MiB"),
            "killed": on_kube.train(
                "exec python steps.py 30 0.1 10", learners=2, retries=1, checkpoint={"every": "1s"}
            ),
        }
        registry.shutdown()


def failed(job: weft.Job) -> weft.Job:
    job = job.wait(timeout=900, check=False)
    assert job.state == "FAILED", job
    assert "Traceback" not in job.reason
    return job


def test_a_command_that_fails_on_one_of_two(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["one of two"])
    assert job.reason.startswith("learner 2: exit code 7")
    assert "last words" in job.reason
    assert job.attempts[-1].exit_code == 7


def test_a_learner_that_the_kernel_kills_for_memory(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["memory"])
    assert job.reason.startswith("learner 1 was killed: out of memory (limit 256 MiB)"), job.reason
    assert "out of memory (limit 256 MiB)" in on_kube.shown(job)


def test_a_learner_that_writes_more_than_its_storage(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["storage"])
    assert job.reason.startswith("learner 1 was evicted: it used more storage than it has: "), job.reason
    assert outcomes(job) == ["FAILED"]
    assert job.failures == 1
    assert "evicted: it used more storage than it has" in on_kube.shown(job)


def test_a_gang_whose_learner_is_killed_goes_on_from_its_checkpoint(on_kube: KubeStack) -> None:
    job = on_kube.begun["killed"].wait(timeout=900)
    assert outcomes(job) == ["FAILED", "SUCCEEDED"]
    assert job.attempts[0].reason.startswith("learner 2 was killed by signal 9 (SIGKILL)")
    assert starts(job)[0] == 0
    assert starts(job)[1] >= 5, "the checkpoint was not restored"


def custom(on_kube: KubeStack, image: str) -> weft.Job:
    return on_kube.train("true", framework={"name": "custom", "version": image, "command": "true"}, retries=3)


class _Empty(BaseHTTPRequestHandler):
    """A registry that has no image."""

    def do_GET(self) -> None:
        body = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
        self.send_response(200 if self.path == "/v2/" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - its caller's name

    def log_message(self, *arguments: object) -> None:
        pass


def test_an_image_whose_registry_does_not_answer(on_kube: KubeStack) -> None:
    job = when(on_kube.begun["no registry"], lambda now: "image pull failed" in now.reason, "a reason")
    assert job.state == "PENDING", "it may answer yet"
    assert "learner 1: image pull failed: registry.invalid/nobody/nothing:1: " in job.reason
    assert "image pull failed" in on_kube.shown(job)
    job.halt(grace_seconds=0)


def test_a_name_that_no_image_has(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["no name"])
    assert "'registry.invalid/Not_An_Image' is no valid name of an image" in job.reason
    assert job.error_code == "S103"
    assert len(job.attempts) == 1, "no retry could help"


def test_what_the_api_server_refuses(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["no class"])
    assert "no PriorityClass with name no-such-class was found" in job.reason, job.reason


def test_more_than_any_node_has_waits_and_says_so(on_kube: KubeStack) -> None:
    job = when(on_kube.train("true", cpus=64), lambda now: "does not fit" in now.reason, "a reason")
    assert job.state == "QUEUED"
    assert "asks 64 CPUs a learner, the largest node of engine kubernetes has " in job.reason
    assert "waits for nodes to join" in job.reason
    assert "asks 64 CPUs a learner" in on_kube.shown(job)
    assert on_kube.train("true").wait(timeout=900).state == "COMPLETED", "it holds nobody up"
    assert on_kube.left(job) == []
    job.halt()
    assert job.wait(timeout=900, check=False).state == "HALTED"


def test_an_image_that_does_not_exist(on_kube: KubeStack) -> None:
    job = failed(on_kube.begun["no such image"])
    image = job.manifest["framework"]["version"]
    assert job.reason.startswith(f"image pull failed: {image}: "), job.reason
    assert "not found" in job.reason
    assert job.error_code == "S103"
    assert len(job.attempts) == 1, "no retry could help"
    assert f"image pull failed: {image}" in on_kube.shown(job)
