"""Launcher ``ray`` on the whole stack, by the examples: data from and models to S3, and nothing of Ray left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.e2e.stack import REPOSITORY, Stack, eventually, lines, manifest, running
from tests.ray.cluster import RayCluster
from tests.wheels import make_wheel

import weft

EXAMPLES = REPOSITORY / "examples"
FASHION = EXAMPLES / "fashion-ray"
_ACTORS = """
import json, os, pathlib, ray

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Place:
    def see(self):
        import weft_alpha
        [data] = pathlib.Path(os.environ["DATA_DIR"]).rglob("words.txt")
        return os.environ["LEARNER_ID"], weft_alpha.__version__, data.read_text()

ray.init()
places = [Place.remote() for _ in range(2)]
seen = sorted(ray.get([place.see.remote() for place in places]))
import weft_beta  # the command has installed it beside this program
nodes = sorted(node["NodeName"] for node in ray.nodes())
found = {"installed": weft_beta.__file__, "seen": seen, "nodes": nodes, "environment": dict(os.environ)}
pathlib.Path(os.environ["RESULT_DIR"], "found.json").write_text(json.dumps(found))
"""


def python_of(stack: Stack, image: str) -> str:
    command = [sys.executable, "-m", "weft_workers.environments", "python", image]
    return subprocess.run(command, env=stack.environment, capture_output=True, text=True, check=True).stdout.strip()


def run(stack: Stack, *command: str) -> str:
    done = subprocess.run(command, env=stack.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def completed(job: weft.Job) -> weft.Job:
    job = job.wait(timeout=1400, check=False)
    assert job.state == "COMPLETED", f"{job.reason}\n" + "\n".join(line.text for line in job.logs())
    return job


def node_folders(stack: Stack) -> set[Path]:
    """Where the Ray nodes of the stack's learners keep their files."""
    found: set[Path] = set()
    for process in stack.learners():
        with suppress(psutil.Error):
            found |= {Path(path) for word in process.cmdline() for path in re.findall(r"/[^=:]*/weft-ray-\w+", word)}
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Of the installation; the first test is the only one that needs it."""
    with RayCluster(cpus=4, memory=8 << 30) as started:
        yield started


@pytest.fixture(scope="module")
def stack(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack for this module instead of the session's: the tests of Ray that come later need none."""
    outer = {"type": "ray", "address": cluster.address, "token": cluster.token}
    settings = {"WEFT_ENGINES": json.dumps({"local": {"type": "local"}, "ray": outer})}
    with running(tmp_path_factory.mktemp("ray") / "home", settings) as started:
        yield started


@pytest.fixture(scope="module")
def clothes(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's pictures, here and in S3."""
    folder = tmp_path_factory.mktemp("clothes")
    subprocess.run([sys.executable, str(EXAMPLES / "data/fashion.py"), str(folder)], check=True)
    stack.weft("data", "put", str(folder), "default:fashion-data")
    stack.weft("data", "create", "default:fashion-models")
    return folder


def check_clothes(stack: Stack, job: weft.Job, clothes: Path, folder: Path, accuracy: float) -> None:
    """Both learners' workers trained, and what came to S3 is the model that the log speaks of."""
    said = lines(job, 1)
    assert not any("State API" in line or "multiple active Ray instances" in line for line in said)
    assert sorted(line[-1] for line in said if "worker" in line and "on learner" in line) == ["1", "2"], said
    [final] = [line for line in said if line.startswith("test accuracy")]
    assert float(final.split()[2]) >= accuracy
    stack.weft("download", job.id, "--trainedmodel", "--unpack", "-o", str(folder))
    out = run(stack, python_of(stack, "ray"), str(FASHION / "evaluate.py"), str(folder), str(clothes))
    assert float(out.split("accuracy:")[1].split()[0]) == pytest.approx(float(final.split()[2]), abs=1e-4)


def test_a_cluster_of_its_own_on_a_ray_cluster(stack: Stack, cluster: RayCluster, tmp_path: Path) -> None:
    """The job's packages are built on the outer cluster, whose token and address its programs never see. Both nodes of
    the job's own cluster have the packages and the data, and what the program stores comes to S3. A package that the
    command installs is in the learner's own folder.

    That Ray Train and Horovod run on such a cluster: below."""
    code, data = tmp_path / "code", tmp_path / "data"
    make_wheel(code / "wheels", "weft-alpha", "1.2")
    make_wheel(code / "own", "weft-beta", "2.5")
    (code / "actors.py").write_text(_ACTORS)
    data.mkdir()
    (data / "words.txt").write_text("of the data")
    command = "pip install --quiet --no-index --no-deps own/*.whl && python actors.py"
    framework = {"name": "ray", "command": command, "packages": "weft-alpha", "wheels": "wheels/*.whl"}
    wanted = manifest("", engine="ray", learners=2, memory="1 GiB", framework=framework)
    wanted["data_stores"][0]["training_data"] = {"container": "words"}
    stack.client.data.put(data, "default:words")
    job = completed(stack.train(wanted, code))
    found = json.loads(job.download_file("found.json", tmp_path / "found.json").read_text())
    assert found["seen"] == [[learner, "1.2", "of the data"] for learner in ("1", "2")]
    assert found["nodes"] == ["learner-1", "learner-2"]
    assert job.id in found["installed"] or "/learner-" in found["installed"], found["installed"]
    assert not [name for name, value in found["environment"].items() if cluster.token in value]
    assert found["environment"]["RAY_ADDRESS"] != cluster.gcs_address
    assert job.raw["packages"]["lock"][0]["name"] == "weft-alpha"
    eventually(
        lambda: not cluster.actors("weft-") and not cluster.supervisors("weft-"),
        "the outer cluster is free again",
    )
    cluster.stop()  # the tests below need its room


# The image's first job builds its environment.
@pytest.mark.parametrize("example", ["manifest.yml", "manifest-horovod.yml"])
def test_clothes(stack: Stack, clothes: Path, tmp_path: Path, example: str) -> None:
    job = stack.client.train(FASHION / example, FASHION)
    eventually(lambda: len(node_folders(stack)) == 2 or job.refresh().is_terminal, "its two Ray nodes", 1400)
    folders = node_folders(stack)
    job = completed(job)
    check_clothes(stack, job, clothes, tmp_path, 0.95)
    eventually(lambda: not stack.learners(), f"left behind: {stack.learners()}")
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)
