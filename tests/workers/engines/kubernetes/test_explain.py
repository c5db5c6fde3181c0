"""The meaning of pods: states and reasons, from pods recorded on the test cluster and from handwritten newer ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.workers.engines.kubernetes.samples import (
    NOW,
    at,
    condition,
    node,
    pod,
    recorded,
    recorded_events,
    running,
    terminated,
    waiting,
)

from weft_core.engine import LearnerObservation, LearnerState
from weft_workers.engines.kubernetes import events, explain, runs

Json = dict[str, Any]
NODES = {name: node(name) for name in ("node-1", "node-2")}
STARTING, RUNNING, EXITED = LearnerState.STARTING, LearnerState.RUNNING, LearnerState.EXITED


def observed(found: Json, nodes: dict[str, Json] | None = None, **more: Any) -> LearnerObservation:
    return explain.learner(runs.trim_pod(found), 0, NODES if nodes is None else nodes, NOW, **more)


# --- recorded -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "code", "reason", "oom"),
    [
        ("running", RUNNING, None, "", False),
        ("completed", EXITED, 0, "", False),
        ("exit-3", EXITED, 3, "exit code 3: something went wrong", False),
        ("sigkill", EXITED, -9, "killed by signal 9 (SIGKILL)", False),
        ("segv", EXITED, -11, "killed by signal 11 (SIGSEGV)", False),
        ("oom", EXITED, -9, "killed by the kernel: out of memory (limit 32 MiB)", True),
        ("oom-child", EXITED, 1, "killed by the kernel: out of memory (limit 32 MiB)", True),
        (
            "storage",
            EXITED,
            None,
            'evicted: it used more storage than it has: Usage of EmptyDir volume "work" exceeds the limit "20971520".',
            False,
        ),
        (
            "too-big",
            STARTING,
            None,
            "unschedulable: no node has 50 CPUs and 100 GiB of memory free "
            "(2 nodes: 2 with too little CPU, 2 with too little memory)",
            False,
        ),
        (
            "selector",
            STARTING,
            None,
            "unschedulable: no node fits (2 nodes: 2 not of the kind asked for)",
            False,
        ),
        (
            "gpu",
            STARTING,
            None,
            "unschedulable: no node has 1 GPU free (2 nodes: 2 with too little nvidia.com/gpu)",
            False,
        ),
    ],
)
def test_recorded_pods(name: str, state: LearnerState, code: int | None, reason: str, oom: bool) -> None:
    found = recorded(name)
    seen = observed(found)
    node, over = found["spec"].get("nodeName") or "", name == "storage"
    assert seen == LearnerObservation(0, state, code, reason, oom=oom, over_storage=over, node=node)
    assert explain.failure(found, "", NOW) is None


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("invalid-image", "'Not A Name!' is no valid name of an image"),
        ("no-python", "image weft.test/busybox:1 can't run a learner: it has no program 'python'"),
        ("no-agent", "image weft.test/standin:1 can't run a learner: its python has no module weft_trainer"),
    ],
)
def test_recorded_pods_that_can_never_run(name: str, failed: str) -> None:
    assert explain.failure(recorded(name), "", NOW) == (failed, "S103")


def test_a_recorded_pull_that_may_still_work() -> None:
    found = recorded("bad-image")
    seen = observed(found, event=events.say(recorded_events("bad-image")))
    assert seen.state is STARTING
    assert seen.reason.startswith("image pull failed: nowhere.test/nothing:1: failed to do request: Head")
    assert seen.reason.endswith("connection refused")
    hour = NOW + timedelta(hours=1)
    assert explain.failure(found, events.say(recorded_events("bad-image")), hour) is None


# --- the start ----------------------------------------------------------------------------------------------------

_PULL = 'rpc error: code = {} desc = failed to pull and unpack image "{}": failed to resolve reference "{}": {}: {}'


_BACK_OFF = 'Back-off pulling image "weft/python:3.11"'


def _unpulled(code: str, cause: str) -> str:
    image = "docker.io/weft/python:3.11"
    return _PULL.format(code, image, image, image, cause)


def test_an_image_that_is_not_there_fails_when_it_persists() -> None:
    for reason, message, event in (
        ("ErrImagePull", _unpulled("NotFound", "not found"), ""),
        (
            "ImagePullBackOff",
            'Back-off pulling image "weft/python:3.11"',
            f"Failed: {_unpulled('NotFound', 'not found')}",
        ),
        (
            "ImagePullBackOff",
            f"{_BACK_OFF}: ErrImagePull: {_unpulled('Unknown', '401 Unauthorized')}",
            "",
        ),
        ("ErrImageNeverPull", 'Container image "weft/python:3.11" is not present with pull policy of Never', ""),
    ):
        early = pod(waiting(reason, message), phase="Pending", age=30)
        assert observed(early, event=event).reason.startswith("image pull failed: ")
        assert explain.failure(early, event, NOW) is None
        failed = explain.failure(pod(waiting(reason, message), phase="Pending", age=90), event, NOW)
        assert failed is not None
        assert failed[0].startswith("image pull failed: ")
        assert "weft/python:3.11" in failed[0]
        assert failed[1] == "S103"


@pytest.mark.parametrize(
    "cause", ["dial tcp: i/o timeout", "503 Service Unavailable", "connection refused", "toomanyrequests: rate limit"]
)
def test_a_registry_in_trouble_is_waited_for(cause: str) -> None:
    found = pod(waiting("ErrImagePull", _unpulled("Unknown", cause)), phase="Pending", age=3600)
    assert explain.failure(found, "", NOW) is None
    assert observed(found).reason == f"image pull failed: docker.io/weft/python:3.11: {cause}"


def test_a_container_that_can_not_be_made_fails_when_it_persists() -> None:
    message = 'secret "weft-job-1-1" not found'
    for reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        assert explain.failure(pod(waiting(reason, message), phase="Pending", age=20), "", NOW) is None
        found = pod(waiting(reason, message), phase="Pending", age=90)
        assert explain.failure(found, "", NOW) == (f"the container can't be started: {message}", "S101")
        assert observed(found).reason == f"the container can't be started: {message}"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"),
        ("CreateContainerError", "context deadline exceeded"),
        (
            "CreateContainerError",
            'failed to reserve container name "learner_0": name "learner_0" is reserved for "3f2a"',
        ),
        ("RunContainerError", "dial unix /run/containerd/containerd.sock: connect: connection refused"),
    ],
)
def test_a_node_that_is_too_busy_to_make_a_container_is_waited_for(reason: str, message: str) -> None:
    found = pod(waiting(reason, message), phase="Pending", age=3600)
    assert explain.failure(found, "", NOW) is None
    assert observed(found).reason.startswith("the container can't be started: ")


def test_an_image_without_python_whatever_the_runtime_says() -> None:
    for reason, message in (
        ("StartError", 'OCI runtime create failed: exec: "python": executable file not found in $PATH: unknown'),
        ("ContainerCannotRun", 'starting container process caused: exec: \\"python\\": stat python: no such file'),
        ("StartError", 'OCI runtime create failed: exec: "python3": executable file not found in $PATH: unknown'),
    ):
        found = pod(terminated(128, reason, message=message), phase="Failed")
        program = "python3" if "python3" in message else "python"
        assert explain.failure(found, "", NOW) == (
            f"image weft/python:3.11 can't run a learner: it has no program '{program}'",
            "S103",
        )


def test_the_agent_that_can_not_be_copied() -> None:
    agent = {"name": "agent", "image": "weft/agent:1", "state": terminated(1, message="cp: no space left\n")}
    found = pod(waiting("PodInitializing"), phase="Failed", initContainerStatuses=[agent])
    assert observed(found).reason == "the agent could not be brought into its pod: exit code 1: cp: no space left"


def test_the_agents_image_that_can_not_be_pulled() -> None:
    message = 'rpc error: code = NotFound desc = failed to pull and unpack image "weft/agent:1": not found'
    agent = {"name": "agent", "image": "weft/agent:1", "state": waiting("ErrImagePull", message)}
    found = pod(waiting("PodInitializing"), phase="Pending", age=90, initContainerStatuses=[agent])
    assert observed(found).reason == "image pull failed: weft/agent:1: not found"
    assert explain.failure(found, "", NOW) == ("image pull failed: weft/agent:1: not found", "S103")
    busy = pod(
        waiting("PodInitializing"), phase="Pending", initContainerStatuses=[{"name": "agent", "state": running()}]
    )
    assert observed(busy).reason == ""


def test_a_container_that_the_runtime_can_not_start() -> None:
    message = "failed to create shim task: OCI runtime create failed: unable to apply cgroup configuration: unknown"
    found = pod(terminated(128, "StartError", message=message), phase="Failed")
    assert explain.failure(found, "", NOW) == (f"the container can't be started: {message}", "S101")


def test_what_a_starting_learner_waits_for_is_in_its_events() -> None:
    found = pod(waiting("ContainerCreating"), phase="Pending")
    assert explain.needs_events(found, NOW)
    assert not explain.needs_events(pod(waiting("ContainerCreating"), phase="Pending", age=1), NOW)
    assert not explain.needs_events(pod(running()), NOW)
    there = [
        {"type": "Normal", "reason": "Scheduled", "message": "…", "lastTimestamp": at(20)},
        {"type": "Normal", "reason": "Pulling", "message": 'Pulling image "weft/python:3.11"', "lastTimestamp": at(10)},
    ]
    assert observed(found, event=events.say(there)).reason == "pulling its image weft/python:3.11"
    assert events.say([]) == ""


# --- scheduling ---------------------------------------------------------------------------------------------------


def test_a_pod_that_is_held_back() -> None:
    gated = (condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty gates"),)
    found = pod(phase="Pending", node=None, conditions=gated)
    assert observed(found).reason == "held back by a scheduling gate"
    assert not explain.is_held(found)
    found["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    assert explain.is_held(found)


# --- the platform takes it back -----------------------------------------------------------------------------------

EVICTED = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            pod(
                running(), deleted=(2, 30), conditions=(condition("DisruptionTarget", reason="PreemptionByScheduler"),)
            ),
            "preempted by a pod of higher priority",
        ),
        (
            pod(
                running(),
                deleted=(2, 30),
                conditions=(
                    condition("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting"),
                ),
            ),
            "evicted: its node is being drained (Eviction API: evicting)",
        ),
        (
            pod(
                terminated(137),
                phase="Failed",
                reason="Evicted",
                message=EVICTED,
                conditions=(condition("DisruptionTarget", reason="TerminationByKubelet", message=EVICTED),),
            ),
            f"ended by its node: {EVICTED}",
        ),
        (pod(phase="Failed", reason="Evicted", message=EVICTED), f"evicted by its node: {EVICTED}"),
        (
            pod(
                terminated(143),
                phase="Failed",
                reason="Terminated",
                message="Pod was terminated in response to imminent node shutdown.",
            ),
            "its node is being shut down: Pod was terminated in response to imminent node shutdown.",
        ),
        (
            pod(phase="Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
            "preempted by a critical pod of its node: Preempted in order to admit critical pod",
        ),
        (
            pod(phase="Failed", reason="OutOfcpu", message="Pod Node didn't have enough resource: cpu"),
            "its node refused it: Pod Node didn't have enough resource: cpu",
        ),
        (
            pod(phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed due to no GPU"),
            "its node refused it: Allocate failed due to no GPU",
        ),
        (
            pod(phase="Failed", reason="NodeAffinity", message="Predicate NodeAffinity failed"),
            "its node refused it: the node's labels have changed: Predicate NodeAffinity failed",
        ),
        (pod(terminated(255, "Unknown")), "its node node-1 was lost for a while, and the learner with it"),
        (
            pod(terminated(137, "ContainerStatusUnknown"), phase="Failed"),
            "its node node-1 was lost for a while, and the learner with it",
        ),
        (
            pod(running(), deleted=(3, 30)),
            "its pod was deleted by somebody else than Weft: a drained node, or an administrator",
        ),
        (
            pod(terminated(143, ago=1), phase="Failed", deleted=(3, 30)),
            "its pod was deleted by somebody else than Weft: a drained node, or an administrator",
        ),
        (
            pod(
                running(),
                deleted=(3, 30),
                conditions=(condition("TerminationTarget", reason="Preempted", message="Preempted by workload x"),),
            ),
            "taken back by Kueue: Preempted by workload x",
        ),
    ],
)
def test_what_is_the_platforms_doing(found: Json, reason: str) -> None:
    seen = observed(found)
    assert (seen.reason, seen.interrupted, seen.oom, seen.unreachable) == (reason, True, False, False)
    assert not seen.over_storage


@pytest.mark.parametrize(
    "message",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        'Container learner exceeded its local ephemeral storage limit "1Gi". ',
        'Usage of EmptyDir volume "shm" exceeds the limit "64Mi". ',
    ],
)
def test_more_storage_than_its_own_is_its_own_fault(message: str) -> None:
    disrupted = (condition("DisruptionTarget", reason="TerminationByKubelet", message=message),)
    seen = observed(pod(terminated(137), phase="Failed", reason="Evicted", message=message, conditions=disrupted))
    assert (seen.over_storage, seen.interrupted) == (True, False)
    assert seen.reason == f"evicted: it used more storage than it has: {message.strip()}"


def test_an_end_before_the_deletion_is_its_own() -> None:
    seen = observed(pod(terminated(3, ago=20), phase="Failed", deleted=(5, 30)))
    assert (seen.exit_code, seen.interrupted, seen.reason) == (3, False, "exit code 3")


def test_an_event_says_who_preempted_it() -> None:
    seen = observed(pod(running(), deleted=(3, 30)), event="Preempted: by learners/other on node node-1")
    assert seen.interrupted
    assert seen.reason == "its pod was deleted: Preempted: by learners/other on node node-1"


def test_a_deletion_by_weft_is_no_interruption() -> None:
    alive = observed(pod(running(), deleted=(3, 30)), stopped=True)
    assert (alive.state, alive.interrupted, alive.reason) == (RUNNING, False, "")
    ended = observed(pod(terminated(143, ago=1), phase="Failed", deleted=(3, 30)), stopped=True)
    assert (ended.exit_code, ended.interrupted) == (-15, False)


def test_a_pod_that_vanished_was_taken() -> None:
    seen = observed(pod(running()), deleted=True)
    assert (seen.state, seen.interrupted, seen.reason) == (EXITED, True, "its pod was deleted")
    ended = observed(pod(terminated(0, "Completed"), phase="Succeeded"), deleted=True)
    assert (ended.state, ended.exit_code, ended.interrupted) == (EXITED, 0, False)


def test_a_deleted_pod_that_never_had_a_node_is_gone() -> None:
    """A finalizer (Kueue's) may hold it."""
    seen = observed(pod(phase="Pending", node=None, deleted=(3, 0)))
    assert (seen.state, seen.interrupted) == (EXITED, True)


# --- nodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ({"node-1": node(ready="Unknown", ago=42)}, "node node-1 has not answered since 2026-11-21 11:59:18 UTC"),
        ({"node-1": node(ready="False", ago=61)}, "node node-1 is not ready since 2026-11-21 11:58:59 UTC"),
        ({}, "node node-1 is gone"),
    ],
)
def test_a_lost_node(there: dict[str, Json], reason: str) -> None:
    for found in (pod(running()), pod(running(), deleted=(10, 30)), pod(waiting("ContainerCreating"), phase="Pending")):
        seen = observed(found, there)
        assert (seen.reason, seen.unreachable, seen.interrupted, seen.node) == (reason, True, False, "node-1")
        assert seen.state is not EXITED
    assert observed(pod(terminated(3), phase="Failed"), there).state is EXITED, "what is known stays known"


def test_a_kubelet_that_restarts_hurts_nobody() -> None:
    seen = observed(pod(running()), {"node-1": node(ready="False", ago=10)})
    assert (seen.state, seen.unreachable, seen.reason) == (RUNNING, False, "")


# --- runs ---------------------------------------------------------------------------------------------------------


def observe(secrets: list[Json], pods: list[Json], deleted: list[Json] | None = None) -> dict[str, Any]:
    def held(found: Json) -> str:
        return "held by Kueue"

    return dict(runs.observe(secrets, pods, deleted or [], NODES, NOW, event=lambda found: "", held=held))


def secret(run: str = "weft-job-1-1") -> Json:
    return {"metadata": {"name": run, "labels": {"weft.dev/run": run}}}


def test_a_secret_without_pods_is_a_run() -> None:
    assert observe([secret()], [])["weft-job-1-1"].learners == {}
    assert observe([], []) == {}


def test_pods_without_a_secret_are_a_run_that_is_being_stopped() -> None:
    [run] = observe([], [pod(running(), deleted=(3, 30))]).values()
    assert run.learners[0].state is RUNNING
    assert not run.learners[0].interrupted
    assert not run.gone


def test_a_vanished_pod_counts_until_another_is_there() -> None:
    ghost = pod(running())
    [run] = observe([secret()], [], [ghost]).values()
    assert run.learners[0].interrupted
    assert observe([], [], [ghost]) == {}
    again = pod(running())
    again["metadata"]["uid"] = "uid-2"
    [run] = observe([secret()], [again], [ghost]).values()
    assert not run.learners[0].interrupted


def test_one_learner_that_can_not_run_fails_the_run() -> None:
    bad, good = pod(waiting("InvalidImageName"), phase="Pending"), pod(running())
    good["metadata"]["labels"]["weft.dev/learner"] = "2"
    [run] = observe([secret()], [bad, good]).values()
    assert "no valid name" in run.failed
    assert run.failed_code == "S103"
    assert sorted(run.learners) == [0, 1]


def test_a_run_that_is_being_stopped_is_gone_only_when_its_learners_are() -> None:
    [run] = observe([], [pod(waiting("InvalidImageName"), phase="Pending", deleted=(3, 1))]).values()
    assert not run.failed
    assert not run.gone


def test_a_gated_pod_holds_the_run() -> None:
    gated = pod(phase="Pending", node=None)
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    [run] = observe([secret()], [gated]).values()
    assert run.held == "held by Kueue"
