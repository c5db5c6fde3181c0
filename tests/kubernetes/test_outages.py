"""Parts of the cluster, and of Weft, break in mid-training: the job completes, once, at no cost to its user."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.e2e.stack import eventually, lines, saw
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.stack import (
    BY_PROXY,
    RESUMES,
    TICKS,
    TIMINGS,
    KubeStack,
    messages,
    outcomes,
    processing,
    starts,
    steps,
    under_way,
    when,
)
from tests.workers.engines.kubernetes.bench import KubeBench, until

import weft
from weft_core.engine import LearnerState

SILENT = TIMINGS["silence"] * 0.75
"""Seconds for which the API server hangs, and for which it is dead: together more than a learner may be silent."""


def is_stored(job: weft.Job) -> None:
    """Wait until a checkpoint is stored of what a job has done by now, or later. The next one to be complete may have
    begun earlier."""
    for _ in range(2):
        before = [checkpoint.generation for checkpoint in job.checkpoints()][:1]
        eventually(lambda: [each.generation for each in job.checkpoints()][:1] != before, "a checkpoint")  # noqa: B023


def check_went_on(job: weft.Job, at_least: int) -> None:
    """It was interrupted at no cost, and its second attempt began where the first had got to."""
    assert outcomes(job) == ["INTERRUPTED", "SUCCEEDED"], job.attempts
    assert job.failures == 0
    first, second = starts(job)
    assert first == 0
    assert at_least <= second <= max(steps(job, 1)) + 1
    assert steps(job, 2)[0] == second


@pytest.fixture(scope="module")
def begun(on_kube: KubeStack) -> Mapping[str, weft.Job]:
    """Jobs of the tests in which both nodes live, which are begun together: most of their time is waiting for pods."""
    return {
        "ticks": on_kube.train(TICKS, learners=2),
        "drained": on_kube.train(RESUMES, learners=2, checkpoint={"every": "60s"}),
        "unowned": on_kube.train("sleep 3000", learners=2),
    }


def test_a_pod_that_is_deleted_as_a_drain_does(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    job = begun["drained"]
    under_way(on_kube, job)
    pod = on_kube.pods(job)[1]["metadata"]["name"]
    done = max(steps(job, 1))
    on_kube.cluster.kubectl("delete", "pod", pod, "-n", on_kube.namespace, "--wait=false")
    job = job.wait(timeout=900)
    # With the checkpoint that SIGTERM gave it time for: by itself none was due yet.
    check_went_on(job, done)
    assert job.attempts[0].reason.startswith("learner 1 was interrupted: "), job.attempts[0].reason
    assert "starts again: learner 1 was interrupted" in messages(job)


def test_what_belongs_to_no_attempt_is_collected(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    """A database restored from an older backup knows nothing of what runs; what others run is not ours to collect."""
    cluster, namespace = on_kube.cluster, on_kube.namespace
    job = begun["unowned"]
    processing(job)
    pod = on_kube.pods(job)[1]
    labels = {**pod["metadata"]["labels"], "weft.dev/installation": "another", "weft.dev/job": "theirs"}
    chosen = ",".join(f"{name}={value}" for name, value in labels.items())
    words = ("run", "stranger", "-n", namespace, "--image=weft/python:3.11", "--restart=Never", f"--labels={chosen}")
    cluster.kubectl(*words, "--command", "--", "sleep", "600")
    try:
        with psycopg.connect(on_kube.database_url) as connection:
            connection.execute("delete from jobs where id = %s", [job.id])
        on_kube.trained.remove(job)
        on_kube.check_nothing_left(job)
        assert cluster.kubectl("get", "pod", "stranger", "-n", namespace, "-o", "name").strip() == "pod/stranger"
    finally:
        cluster.kubectl("delete", "pod", "stranger", "-n", namespace, "--grace-period=0", "--force")


def test_learners_outlive_the_service(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> None:
    """How the job ends, with every line once, is in the next test."""
    stack, job = on_kube.stack, begun["ticks"]
    for learner in (1, 2):
        eventually(saw(job, "tick 3", learner), "under way")
    pods = {pod["metadata"]["uid"] for pod in on_kube.pods(job).values()}
    assert len(pods) == 2
    ticks = {learner: len(lines(job, learner)) for learner in (1, 2)}
    stack.down()
    stack.up()
    for learner in (1, 2):
        eventually(lambda: len(lines(job, learner)) > ticks[learner] + 10, "it has gone on all the time", 240)  # noqa: B023
    now = job.refresh()
    assert (now.state, len(now.attempts)) == ("PROCESSING", 1)
    assert {pod["metadata"]["uid"] for pod in on_kube.pods(job).values()} == pods


def test_the_api_server_is_away_for_longer_than_a_learner_may_be_silent(
    on_kube: KubeStack, begun: Mapping[str, weft.Job]
) -> None:
    cluster, job = on_kube.cluster, begun["ticks"]
    for learner in (1, 2):
        eventually(saw(job, "tick 3", learner), "under way")
    began, server = time.monotonic(), cluster.pid("apiserver")
    os.kill(server, signal.SIGSTOP)
    try:
        job = when(job, lambda now: now.condition, "a condition")
        assert (job.condition or "").startswith("Unreachable since "), job.condition
        assert "Unreachable since" in on_kube.shown(job)
        eventually(lambda: on_kube.engine().unreachable_since, "the engine is unreachable")
        ticks = len(lines(job))
        late = on_kube.train("python count.py 3 0")
        time.sleep(max(0.0, SILENT - (time.monotonic() - began)))
        os.kill(server, signal.SIGKILL)  # it hung for half of the time, and refuses connections for the other
        time.sleep(max(0.0, 2 * SILENT - (time.monotonic() - began)))
        eventually(lambda: len(lines(job)) > ticks + 10, "training goes on")
        assert job.refresh().state == "PROCESSING"
        assert late.refresh().state in ("QUEUED", "PENDING")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)
        cluster.up(nodes=2)
    when(job, lambda now: now.condition is None, "the condition goes")
    for learner in (1, 2):
        on_kube.tell(job, learner)
    job = job.wait(timeout=900)
    assert outcomes(job) == ["SUCCEEDED"]
    assert job.failures == 0
    for learner in (1, 2):
        numbers = [int(line.split()[1]) for line in lines(job, learner) if line.startswith("tick")]
        assert numbers == list(range(len(numbers))), "every line once"
    assert late.wait(timeout=900).state == "COMPLETED"


def test_a_worker_is_killed_between_two_creations_of_pods(on_kube: KubeStack) -> None:
    stack, proxy = on_kube.stack, on_kube.proxy
    worker, killed = stack.parts()["worker"], threading.Event()
    before = proxy.created

    def kill(number: int) -> None:
        if number == before + 1:
            os.killpg(worker, signal.SIGKILL)
            killed.set()

    proxy.on_created = kill
    job = on_kube.train("python count.py 40 0.1", learners=2, engine=BY_PROXY)
    try:
        assert killed.wait(120), "the worker was killed"
    finally:
        proxy.on_created = lambda number: None
    job = job.wait(timeout=900)
    assert outcomes(job) == ["SUCCEEDED"]
    assert proxy.created == before + 2, "what was there was adopted, and only the rest was created"
    for learner in (1, 2):
        assert lines(job, learner) == [f"line {number}" for number in range(40)]


@pytest.fixture
def bench(kube: Cluster, standin: str, tmp_path: Path) -> Iterator[KubeBench]:
    with KubeBench.opened(kube, tmp_path) as made:
        yield made


def test_a_node_is_lost_and_comes_back(on_kube: KubeStack, bench: KubeBench) -> None:
    """With a learner of a job, and with two runs of an engine that no service drives: a stop forgets a run when its
    grace is over, and the learner of the other was lost when the node is back."""
    cluster = on_kube.cluster
    job = on_kube.train(RESUMES, learners=2, profile="spread", checkpoint={"every": "1s"})
    where = under_way(on_kube, job)
    assert where[1] != where[2], "the profile spreads them"
    node, stale = where[2], on_kube.pods(job)[2]["metadata"]["uid"]
    engine = bench.new_engine(node_selector={"kubernetes.io/hostname": node})
    stopped, kept = bench.spec(), bench.spec(run_name="weft-kept-1", job_id="kept")
    for spec in (stopped, kept):
        engine.launch(spec)
    for spec in (stopped, kept):
        assert bench.running(spec).node == node
    done = max(steps(job, 1))
    os.kill(cluster.pid(node), signal.SIGKILL)
    try:
        learner = bench.wait(stopped, lambda learner: learner.unreachable)
        assert learner.state is LearnerState.RUNNING
        assert learner.reason.startswith(f"node {node} has not answered since ")
        assert not learner.interrupted
        until(lambda: {seen.name: seen.ready for seen in engine.capacity().nodes} == {node: False})
        engine.stop(stopped.run_name, timedelta(seconds=3))
        assert bench.observe(stopped), "it may still live"

        def forgotten() -> bool:
            engine.stop(stopped.run_name, timedelta(0))
            return bench.observe(stopped) is None

        until(forgotten)
        bench.gone(stopped)
        assert bench.observe(kept)

        job = job.wait(timeout=900)
        check_went_on(job, done)
        reason = job.attempts[0].reason
        assert reason.startswith(f"learner 2 was lost with its node: node {node} has not answered"), reason
        assert {learner.node for learner in job.attempts[1].learners} == {where[1]}
    finally:
        cluster.up(nodes=2)
    eventually(lambda: cluster.is_ready(node), "the node is back")
    learner = bench.exited(kept)
    assert learner.interrupted
    assert "node" in learner.reason
    engine.stop(kept.run_name, timedelta(0))
    bench.gone(kept)
    eventually(lambda: stale not in [pod["metadata"]["uid"] for pod in on_kube.objects(job)], "the pod is gone")
    assert on_kube.stack.client.jobs.get(job.id).state == "COMPLETED"
    back = on_kube.train("true", learners=2, profile="spread").wait(timeout=900)
    assert {learner.node for learner in back.attempts[0].learners} == set(where.values()), "both take learners again"


def test_a_node_that_does_not_answer_and_two_learners_on_it(on_kube: KubeStack) -> None:
    """One keeps running and reports that: unknown is not dead. One is as silent as its node and is given up; when it
    wakes in the middle of its step, its job is over and it changes nothing."""
    cluster = on_kube.cluster
    lively = on_kube.train(TICKS, profile="rather-node-2")
    # A checkpoint counts as complete when it has not changed for a second.
    silent = on_kube.train(RESUMES, profile="rather-node-2", checkpoint={"every": "1s"}, env={"PAUSE": "3"})
    assert (under_way(on_kube, silent, step=4), on_kube.nodes(lively)) == ({1: "node-2"}, {1: "node-2"})
    is_stored(silent)
    stale, kubelet = on_kube.pods(silent)[1]["metadata"]["uid"], cluster.pid("kubelet-2")
    frozen = cluster.processes_of(stale)
    assert len(frozen) >= 2, "its agent, and what it runs"
    os.kill(kubelet, signal.SIGSTOP)
    try:
        for process in frozen:
            process.suspend()
        lively = when(lively, lambda now: now.condition, "a condition")
        assert "learner 1: node node-2 has not answered since" in (lively.condition or "")
        assert "node node-2 has not answered" in on_kube.shown(lively)
        silent = silent.wait(timeout=900)
        check_went_on(silent, 4)
        assert silent.attempts[0].reason.startswith("learner 1 was lost with its node: node node-2 has not answered")
        assert [learner.node for learner in silent.attempts[1].learners] == ["node-1"]
        assert lively.refresh().state == "PROCESSING"
        stored, ticks = result(on_kube, silent), len(lines(lively))
        assert any(process.is_running() for process in frozen), "nobody could end it"
    finally:
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        # It wakes before its node does, and learns from Weft's API alone that its attempt is over.
        _, awake = psutil.wait_procs(frozen, timeout=300)
        os.kill(kubelet, signal.SIGCONT)
    assert awake == []
    when(lively, lambda now: now.condition is None, "the condition goes")
    eventually(lambda: len(lines(lively)) > ticks, "it has gone on all the time")
    on_kube.tell(lively)
    lively = lively.wait(timeout=900)
    assert outcomes(lively) == ["SUCCEEDED"]
    assert lines(lively)[-1] == "told"
    eventually(lambda: stale not in [pod["metadata"]["uid"] for pod in on_kube.objects(silent)], "the pod is gone")
    assert (silent.refresh().state, result(on_kube, silent)) == ("COMPLETED", stored)


def result(on_kube: KubeStack, job: weft.Job) -> dict[str, str]:
    """What is in the store of a job: paths with their sizes and times."""
    return {file.path: f"{file.size} {file.modified}" for file in job.files()}
