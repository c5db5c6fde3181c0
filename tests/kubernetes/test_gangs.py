"""Gangs that do more than start together: of Horovod and Ray, learners that come and go, models handed on."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.stack import REPOSITORY, eventually, lines, saw
from tests.kubernetes.stack import END, ENGINE, KubeStack, messages, outcomes, when

import weft

EXAMPLE = REPOSITORY / "examples" / "mnist-horovod-pytorch"
_KEEPS = {"training_results": {"model": "podded"}}


def completed(job: weft.Job) -> weft.Job:
    job = job.wait(timeout=900, check=False)
    assert job.state == "COMPLETED", f"{job.reason}\n" + "\n".join(line.text for line in job.logs())
    assert outcomes(job) == ["SUCCEEDED"]
    return job


@pytest.fixture(scope="module")
def begun(
    on_kube: KubeStack, horovod_image: str, ray_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, weft.Job]:
    """Jobs of the other tests, which are begun together: most of their time is waiting for pods and imports."""
    client, data = on_kube.stack.client, tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, str(REPOSITORY / "examples/data/digits.py"), str(data)], check=True)
    client.data.put(data, "default:mnist-data")
    client.data.create("default:mnist-models")
    # The whole of it, and how good it gets, is in tests/e2e/test_examples.py.
    changes = {"engine": ENGINE, "cpus": "0.8", "framework.command": "python train.py --epochs 4"}
    mnist = client.train(EXAMPLE / "manifest.yml", EXAMPLE, overrides=changes)
    on_kube.trained.append(mnist)
    ray = {"name": "ray", "command": "python ray_nodes.py"}
    return {
        "mnist": mnist,
        "ray": on_kube.train("", framework=ray, learners=2, cpus=1, memory="2 GiB"),
        "model": on_kube.train("echo one > $RESULT_DIR/weights", data_stores=[_KEEPS]),
    }


@pytest.fixture(scope="module", autouse=True)
def pods(on_kube: KubeStack, begun: Mapping[str, weft.Job]) -> Mapping[str, Mapping[int, dict[str, Any]]]:
    """The pods of jobs that may have ended before their tests' turn, by learner."""

    seen: dict[str, Mapping[int, dict[str, Any]]] = {}

    def all_seen() -> bool:
        for name in {"mnist", "ray"} - set(seen):
            found = on_kube.pods(begun[name])
            if len(found) == 2 and all(pod["spec"].get("nodeName") for pod in found.values()):
                seen[name] = found
        return len(seen) == 2

    eventually(all_seen, "pods on nodes")
    return seen


def test_two_learners_of_horovod_train_mnist_from_s3_to_s3(
    on_kube: KubeStack,
    horovod_image: str,
    begun: Mapping[str, weft.Job],
    pods: Mapping[str, Mapping[int, dict[str, Any]]],
    tmp_path: Path,
) -> None:
    ours = pods["mnist"]
    assert set(ours) == {1, 2}
    assert {pod["spec"]["containers"][0]["image"] for pod in ours.values()} == {horovod_image}
    assert {pod["spec"]["nodeName"] for pod in ours.values()} <= set(on_kube.cluster.nodes)
    job = completed(begun["mnist"])
    shown = on_kube.shown(job)
    assert all(pod["spec"]["nodeName"] in shown for pod in ours.values()), shown
    final = [line for line in lines(job, 1) if line.startswith("test accuracy")][-1]
    assert float(final.split()[2]) >= 0.8
    assert {line.learner for line in job.logs()} == {1, 2}
    with zipfile.ZipFile(job.download_trained_model(tmp_path / "model.zip")) as archive:
        assert any(name.endswith("model.pt") for name in archive.namelist())


def test_a_ray_cluster_of_pods(begun: Mapping[str, weft.Job], pods: Mapping[str, Mapping[int, dict[str, Any]]]) -> None:
    job = completed(begun["ray"])
    said = lines(job, 1)
    for learner, pod in pods["ray"].items():
        assert f"learner {learner} on {pod['metadata']['name']}" in said, said
    assert "totals as they should be: True" in said
    assert not any(line.startswith("totals") for line in lines(job, 2)), "the script runs once"
    assert {"learner-1.txt", "learner-2.txt"} <= {Path(file.path).name for file in job.files()}


def test_a_pod_is_killed_and_training_goes_on_with_fewer_and_then_with_more(
    on_kube: KubeStack, horovod_image: str, tmp_path: Path
) -> None:
    framework = {"name": "horovod", "launcher": "torchrun", "command": f"exec python elastic_plain.py 5 0.1 1 {END}"}
    job = on_kube.train("", framework=framework, learners=2, elastic={"min": 1, "max": 2}, checkpoint={"every": "1s"})
    when(job, lambda now: saw(job, "with 2")() or now.is_terminal, "training with two")
    # Nobody is given more learners while another job waits for room.
    other = on_kube.train("true", cpus=64)
    when(other, lambda now: "does not fit" in now.reason, "it waits")
    for process in on_kube.cluster.processes_of(on_kube.pods(job)[2]["metadata"]["uid"]):
        with contextlib.suppress(psutil.NoSuchProcess):  # it goes with the pod's first one
            process.kill()
    lost = "learner 2 was lost (killed by signal 9 (SIGKILL)): training goes on with 1 of 2"
    eventually(lambda: lost in messages(job), "a learner is lost")
    eventually(saw(job, "with 1"), "training with one")
    assert "there is room for more" not in messages(job)
    other.halt()
    eventually(saw(job, "round 3: rank 0 of 2"), "training with two again")
    on_kube.tell(job)
    job = completed(job)
    assert "learner 3 joined: training goes on with 2 learners" in messages(job)
    rounds = [line for line in lines(job) if line.startswith("round ")]
    assert [line.split(" starts")[0] for line in rounds] == [
        "round 1: rank 0 of 2",
        "round 2: rank 0 of 1",
        "round 3: rank 0 of 2",
    ]
    first = [int(line.rsplit(" ", 1)[1]) for line in rounds]
    assert first[0] == 0 < first[1] < first[2], "each goes on from the last checkpoint"
    with zipfile.ZipFile(job.download_trained_model(tmp_path / "model.zip")) as archive:
        [model] = [name for name in archive.namelist() if name.endswith("model.txt")]
        found = re.fullmatch(r"(\d+) steps, sum (\d+)\n", archive.read(model).decode())
    assert found
    assert found[1] == found[2], "no step was lost or done twice"
    assert int(found[1]) > first[2]


def test_a_model_is_a_version_and_the_next_job_starts_from_it(
    on_kube: KubeStack, begun: Mapping[str, weft.Job]
) -> None:
    models = on_kube.stack.client.models
    first = completed(begun["model"])
    [version] = models.versions("podded")
    assert (version.job, version.version) == (first.id, 1)
    command = 'sed "s/^/$PRETRAINED_MODEL $LEARNER_ID /" $PRETRAINED_DIR/weights | tee $RESULT_DIR/weights'
    second = completed(on_kube.train(command, learners=2, data_stores=[{"model": "podded@1"} | _KEEPS]))
    assert [lines(second, learner) for learner in (1, 2)] == [["podded@1 1 one"], ["podded@1 2 one"]]
    assert "registered as podded@2" in messages(second)
    told = models.version("podded@2")
    assert (told.job, told.parent) == (second.id, "podded@1")
    assert told.lineage["pretrained"]["sha256"] == version.files["sha256"]
