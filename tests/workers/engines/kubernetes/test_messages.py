"""The words for users that Weft makes of messages of schedulers, kubelets and Kueue.

The words change with each release, and clusters of all ages are in use: each generation stays here. Those of 1.20 are
recorded from the test cluster (`recorded.json`) or as it says them; the others are what 1.28 to 1.36 and Kueue up to
0.19 say.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.workers.engines.kubernetes.samples import NOW, at, condition, node, pod, recorded_events, waiting

from weft_core.engine import LearnerObservation
from weft_workers.engines.kubernetes import events, explain, kueue, runs, schedule

Json = dict[str, Any]


def observe(found: Json, event: str = "") -> LearnerObservation:
    return explain.learner(runs.trim_pod(found), 0, {"node-1": node("node-1")}, NOW, event)


# --- the scheduler ------------------------------------------------------------------------------------------------

NO_VICTIMS = "{} No preemption victims found for incoming pod."
NO_HELP = "{} Preemption is not helpful for scheduling."
TODAY = "no new claims to deallocate, preemption: 0/{n} nodes are available: "


def said(n: int, why: str, *after: str) -> str:
    """The scheduler's message for ``n`` nodes; ``after``: its words about preemption."""
    return " ".join((f"0/{n} nodes are available: {why}.", *(text.format(n=n) for text in after)))


NO_CPU = "unschedulable: no node has 8 CPUs free (2 nodes: 2 with too little CPU)"
OLDER = "preemption: 0/{n} nodes are available: "


@pytest.mark.parametrize(
    ("message", "words"),
    [
        # One and the same, from release to release.
        (said(2, "2 Insufficient cpu"), NO_CPU),  # 1.20
        (said(2, "2 Insufficient cpu", OLDER + NO_VICTIMS.format(2)), NO_CPU),  # 1.24
        (said(2, "2 Insufficient cpu", TODAY + NO_VICTIMS.format(2)), NO_CPU),  # 1.34 and later
        (said(2, "2 Insufficient cpu", "still not schedulable, " + OLDER + NO_VICTIMS.format(2)), NO_CPU),
        # Not said yet by any, but like it.
        (said(2, "2 Insufficient cpu", "something else that is new; " + OLDER + "who knows."), NO_CPU),
        ("0/2 nodes are available: 2 Insufficient cpu; preemption: 0/2 nodes are available: …", NO_CPU),
        ("0/2 nodes are available: 2 Insufficient cpu", NO_CPU),
        # Several resources, GPUs, resources of other vendors.
        (
            said(2, "2 Insufficient cpu, 2 Insufficient memory", TODAY + NO_HELP.format(2)),
            "unschedulable: no node has 8 CPUs and 1 GiB of memory free "
            "(2 nodes: 2 with too little CPU, 2 with too little memory)",
        ),
        (
            said(
                5,
                "1 Insufficient nvidia.com/gpu, 4 node(s) didn't match Pod's node affinity/selector",
                TODAY + "1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling.",
            ),
            "unschedulable: no node has 2 GPUs free (5 nodes: 1 with too little nvidia.com/gpu, "
            "4 not of the kind asked for)",
        ),
        (
            said(1, "1 Insufficient vendor.com/nic", TODAY + NO_VICTIMS.format(1)),
            "unschedulable: no node has enough vendor.com/nic free (1 node: 1 with too little vendor.com/nic)",
        ),
        (
            said(1, "1 Insufficient ephemeral-storage", TODAY + NO_VICTIMS.format(1)),
            "unschedulable: no node has enough storage free (1 node: 1 with too little storage)",
        ),
        # Taints: named in the pod's condition once, with their values, and counted only of late.
        (
            said(2, "2 node(s) had taint {team: a, b}, that the pod didn't tolerate"),  # 1.20
            "unschedulable: no node fits (2 nodes: 2 tainted team: a, b)",
        ),
        (
            said(
                4,
                "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
                "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu",
                OLDER + "…",
            ),
            "unschedulable: no node has 2 GPUs free (4 nodes: 1 tainted node-role.kubernetes.io/control-plane, "
            "1 cordoned, 2 with too little nvidia.com/gpu)",
        ),
        (
            said(3, "1 node(s) had untolerated taint {team: a. b}, 2 Insufficient cpu", TODAY + NO_HELP.format(3)),
            "unschedulable: no node has 8 CPUs free (3 nodes: 1 tainted team: a. b, 2 with too little CPU)",
        ),
        (
            said(
                3,
                "1 node(s) had untolerated taint(s), 2 Insufficient cpu",  # 1.35
                TODAY + "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod.",
            ),
            "unschedulable: no node has 8 CPUs free (3 nodes: 1 tainted, 2 with too little CPU)",
        ),
        (
            said(
                2,
                "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, "
                "1 node(s) didn't match Pod's node affinity/selector",
                OLDER + NO_HELP.format(2),
            ),
            "unschedulable: no node fits (2 nodes: 1 not answering, 1 not of the kind asked for)",
        ),
        # Affinity.
        (
            said(2, "2 node(s) didn't match Pod's node affinity"),  # 1.20
            "unschedulable: no node fits (2 nodes: 2 not of the kind asked for)",
        ),
        (
            said(2, "2 node(s) didn't match pod anti-affinity rules", TODAY + NO_HELP.format(2)),
            "unschedulable: no node fits (2 nodes: 2 kept off by pod affinity)",
        ),
        # Unknown words are passed on as they are.
        (
            said(2, "2 node(s) didn't match pod topology spread constraints", "preemption: not eligible due to x."),
            "unschedulable: no node fits (2 nodes: 2 didn't match pod topology spread constraints)",
        ),
        (
            said(2, "1 cannot allocate all claims, 1 Too many pods", "still not schedulable, " + OLDER + "…"),
            "unschedulable: no node fits (2 nodes: 1 cannot allocate all claims, 1 full of pods)",
        ),
        (
            said(3, 'persistentvolumeclaim "cache.a. b" not found', "not found, " + OLDER + NO_HELP.format(3)),
            'unschedulable: no node fits (3 nodes: persistentvolumeclaim "cache.a. b" not found)',
        ),
        (
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
            'unschedulable: running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
        ),
        (
            "waiting for the preemption for this pod to be finished",
            "unschedulable: waiting for the preemption for this pod to be finished",
        ),
        # No nodes at all.
        ("no nodes available to schedule pods", "unschedulable: no nodes available to schedule pods"),
    ],
)
def test_why_no_node_takes_it(message: str, words: str) -> None:
    unscheduled = (condition("PodScheduled", "False", "Unschedulable", message),)
    assert schedule.explain(pod(), message) == words
    assert observe(pod(phase="Pending", node=None, conditions=unscheduled)).reason == words


def test_no_words_yet() -> None:
    assert schedule.explain(pod(), "") == "waiting to be scheduled"


# --- warnings that are over ---------------------------------------------------------------------------------------


def event(reason: str, message: str, ago: float, kind: str = "Warning", **more: Any) -> Json:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at(ago), **more}


UNSCHEDULED = event("FailedScheduling", said(2, "2 Insufficient cpu", TODAY + NO_VICTIMS.format(2)), 5)
MOUNT = 'MountVolume.SetUp failed for volume "cache" : claim "cache" not found'


def test_a_pod_with_a_node_has_been_scheduled() -> None:
    found = pod(waiting("ContainerCreating"), phase="Pending")
    assert explain.needs_events(found, NOW)
    assert events.say([UNSCHEDULED]) == ""
    assert observe(found, events.say([UNSCHEDULED])).reason == ""
    # Today's schedulers write events of the newer API, which have no `lastTimestamp`.
    modern = {**UNSCHEDULED, "lastTimestamp": None, "eventTime": at(5)}
    pulling = event("Pulling", 'Pulling image "weft/python:3.11"', 20, "Normal")
    assert events.say([modern, pulling]) == "pulling its image weft/python:3.11"
    outdated = (condition("PodScheduled", "False", "Unschedulable", UNSCHEDULED["message"]),)
    assert observe(pod(waiting("ContainerCreating"), phase="Pending", conditions=outdated)).reason == ""


@pytest.mark.parametrize(
    "more", [{}, {"source": {"component": "pod-kueue-controller"}}, {"reportingComponent": "pod-kueue-controller"}]
)
def test_kueues_own_bookkeeping_is_nothing_for_users(more: Json) -> None:
    composing = event("ErrWorkloadCompose", "'weft-job-1-1' group has fewer runnable pods than expected", 5, **more)
    assert events.say([composing]) == ""
    mounting = event("FailedMount", MOUNT, 10)
    assert events.say([composing, mounting]) == f"FailedMount: {MOUNT}"


def test_whatever_else_kueue_warns_of_is_its_own_too() -> None:
    unknown = event("SomethingNew", "a word of Kueue's", 5, source={"component": "pod-kueue-controller"})
    assert events.say([unknown]) == ""


def test_a_mount_that_failed_is_over_when_the_image_is_pulled() -> None:
    failed = event("FailedMount", MOUNT, 15)
    pulling = event("Pulling", 'Pulling image "weft/python:3.11"', 10, "Normal")
    assert events.say([failed]) == f"FailedMount: {MOUNT}"
    assert events.say([failed, pulling]) == "pulling its image weft/python:3.11"
    assert events.say([failed, {**pulling, "lastTimestamp": at(20)}]) == f"FailedMount: {MOUNT}"


def test_a_pull_that_failed_is_over_when_one_has_worked() -> None:
    failed = event("Failed", f'Failed to pull image "{IMAGE}": EOF', 15)
    pulling, pulled = (event(reason, f"{reason} {IMAGE}", 10, "Normal") for reason in ("Pulling", "Pulled"))
    assert events.say([failed, pulling]) == "Failed: EOF"
    assert not events.say([failed, pulling, pulled]).startswith("Failed")


def test_an_old_warning_does_not_hide_who_preempted_it() -> None:
    preempted = event("Preempted", "by learners/other on node node-1", 5, "Normal")
    assert events.say([{**UNSCHEDULED, "lastTimestamp": at(3)}, preempted]).startswith("Preempted: ")


# --- images that can't be pulled ----------------------------------------------------------------------------------

IMAGE = "weft/python:3.11"
FULL = f"docker.io/{IMAGE}"
UNRESOLVED = f'failed to pull and unpack image "{FULL}": failed to resolve reference "{FULL}": '
NOT_FOUND = f"rpc error: code = NotFound desc = {UNRESOLVED}{FULL}: not found"
BACK_OFF = f'Back-off pulling image "{IMAGE}"'
PULL_EVENT = f'Failed: Failed to pull image "{IMAGE}": '


@pytest.mark.parametrize(
    ("reason", "message", "told", "words"),
    [
        # 1.20: while the kubelet waits, the cause is in an event alone.
        ("ErrImagePull", NOT_FOUND, "", f"{FULL}: not found"),
        ("ImagePullBackOff", BACK_OFF, PULL_EVENT + NOT_FOUND, f"{FULL}: not found"),
        ("ImagePullBackOff", BACK_OFF, "", IMAGE),  # the event has not been read yet
        ("ImagePullBackOff", BACK_OFF, f"pulling its image {IMAGE}", IMAGE),
        # 1.32 and later: behind the words of the waiting.
        ("ImagePullBackOff", f"{BACK_OFF}: ErrImagePull: {NOT_FOUND}", "", f"{FULL}: not found"),
        (
            "ImagePullBackOff",
            f'{BACK_OFF}: ErrImagePull: {UNRESOLVED}failed to do request: Head "https://r.test/v2/": EOF',
            "",
            f'{IMAGE}: failed to do request: Head "https://r.test/v2/": EOF',
        ),
        (
            "ImagePullBackOff",
            f"{BACK_OFF}: ErrImagePull: rpc error: code = Unknown desc = {UNRESOLVED}pull access denied, repository "
            "does not exist or may require authorization: server message: insufficient_scope: authorization failed",
            "",
            f"{IMAGE}: pull access denied, repository does not exist or may require authorization: server message: "
            "insufficient_scope: authorization failed",
        ),
        # Other runtimes.
        (
            "ImagePullBackOff",
            f"{BACK_OFF}: ErrImagePull: unable to pull image or OCI artifact: pull image err: initializing source "
            f'docker://{IMAGE}: pinging container registry r.test: Get "https://r.test/v2/": EOF; artifact err: …',
            "",
            f'{IMAGE}: pinging container registry r.test: Get "https://r.test/v2/": EOF; artifact err: …',
        ),
        (
            "ImagePullBackOff",
            f"{BACK_OFF}: ErrImagePull: Error response from daemon: pull access denied for weft/python",
            "",
            f"{IMAGE}: pull access denied for weft/python",
        ),
        ("ImagePullBackOff", f"{BACK_OFF}: ErrImagePull: manifest unknown", "", f"{IMAGE}: manifest unknown"),
        (
            "RegistryUnavailable",
            f"image pull failed for {IMAGE} because the registry is unavailable: dial tcp: i/o timeout",
            "",
            f"{IMAGE}: the registry is unavailable: dial tcp: i/o timeout",
        ),
        (
            "SignatureValidationFailed",
            f"image pull failed for {IMAGE} because the signature validation failed: Source image rejected: A "
            "signature was required, but no signature exists",
            "",
            f"{IMAGE}: the signature validation failed: Source image rejected: A signature was required, but no "
            "signature exists",
        ),
        (
            "ErrImageNeverPull",
            f'Container image "{IMAGE}" is not present with pull policy of Never',
            "",
            f'Container image "{IMAGE}" is not present with pull policy of Never',
        ),
    ],
)
def test_the_image_and_the_cause(reason: str, message: str, told: str, words: str) -> None:
    found = pod(waiting(reason, message), phase="Pending")
    assert observe(found, told).reason == f"image pull failed: {words}"


def test_what_can_not_get_better_is_seen_in_all_of_them() -> None:
    hopeless = (
        ("ErrImagePull", NOT_FOUND, ""),
        ("ImagePullBackOff", BACK_OFF, PULL_EVENT + NOT_FOUND),
        ("ImagePullBackOff", f"{BACK_OFF}: ErrImagePull: {NOT_FOUND}", ""),
        ("SignatureValidationFailed", f"image pull failed for {IMAGE} because the signature validation failed", ""),
    )
    for reason, message, told in hopeless:
        failed = explain.failure(pod(waiting(reason, message), phase="Pending", age=90), told, NOW)
        assert failed is not None, (reason, message)
        assert failed[0].startswith("image pull failed: ")
        assert IMAGE in failed[0]
        assert "Back-off" not in failed[0]


def test_a_recorded_pull_names_the_image_first() -> None:
    told = events.say(recorded_events("bad-image"))
    waits = observe(pod(waiting("ImagePullBackOff", BACK_OFF), phase="Pending"), told).reason
    assert waits.startswith(f"image pull failed: {IMAGE}: failed to do request: Head ")


def test_what_a_program_says_itself_is_left_as_it_is() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Error: no such file\n", "finishedAt": at(5)}}
    assert observe(pod(ended, phase="Failed")).reason == "exit code 1: Error: no such file"


# --- Kueue --------------------------------------------------------------------------------------------------------

NO_QUOTA = (
    "couldn't assign flavors to pod set 7273a338: insufficient unused quota for nvidia.com/gpu in flavor a100, "
    "8 more needed"
)
QUOTA = "insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
NOT_READY = condition("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded")
NO_RESERVATION = condition("Admitted", "False", "NoReservation", "The workload has no reservation")
RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus")
UNCHECKED = condition("Admitted", "False", "UnsatisfiedChecks", "The workload has not all checks ready")
DELAYED = condition(
    "Admitted", "False", "PendingDelayedTopologyRequests", "There are pending delayed topology requests"
)
PREEMPTED = "Preempted to accommodate a higher priority Workload"
TWO_SETS = "couldn't assign flavors to pod set {}: insufficient unused quota for {} in flavor default, 1 more needed"


def unreserved(message: str, reason: str = "Pending") -> Json:
    return condition("QuotaReserved", "False", reason, message)


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([unreserved(NO_QUOTA)], QUOTA),  # 0.6
        ([NOT_READY, unreserved(NO_QUOTA, "WaitingForQuota"), NO_RESERVATION], QUOTA),  # 0.19
        ([NO_RESERVATION, NOT_READY, unreserved(NO_QUOTA, "WaitingForQuota")], QUOTA),
        (
            [NOT_READY, unreserved("LocalQueue team-a doesn't exist", "Misconfigured")],
            "LocalQueue team-a doesn't exist",
        ),
        ([unreserved("ClusterQueue gpus is inactive", "Inadmissible"), NOT_READY], "ClusterQueue gpus is inactive"),
        ([NOT_READY, condition("Evicted", reason="Preempted", message=PREEMPTED), unreserved(PREEMPTED)], PREEMPTED),
        (
            [unreserved("; ".join(TWO_SETS.format(*words) for words in (("1a", "cpu"), ("2b", "memory"))))],
            "insufficient unused quota for cpu in flavor default, 1 more needed; "
            "insufficient unused quota for memory in flavor default, 1 more needed",
        ),
        # The quota is reserved, but Kueue's other conditions are not met.
        ([NOT_READY, RESERVED, UNCHECKED], "The workload has not all checks ready"),
        ([NOT_READY, DELAYED, RESERVED], "There are pending delayed topology requests"),
        # It is not known what holds the workload back.
        ([NOT_READY], ""),
        ([NOT_READY, RESERVED], ""),
        ([NOT_READY, RESERVED, condition("Admitted", message="The workload is admitted")], ""),
        ([unreserved("")], ""),
        ([], ""),
    ],
)
def test_why_kueue_holds_a_gang_back(conditions: list[Json], words: str) -> None:
    assert kueue.explain({"conditions": conditions}) == words


def test_the_admission_checks_that_are_not_through() -> None:
    checks = [
        {"name": "quota-of-the-month", "state": "Ready", "message": "fine"},
        {"name": "nodes", "state": "Pending", "message": "Waiting for the ProvisioningRequest to be provisioned"},
        {"name": "elsewhere", "state": "Retry"},
    ]
    words = "waits for admission check nodes (Waiting for the ProvisioningRequest to be provisioned), elsewhere"
    for conditions in ([NOT_READY, RESERVED], [NOT_READY, RESERVED, UNCHECKED]):
        assert kueue.explain({"conditions": conditions, "admissionChecks": checks}) == words
    assert kueue.explain({"conditions": [unreserved(NO_QUOTA)], "admissionChecks": checks}) == QUOTA
