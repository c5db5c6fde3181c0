"""Launcher ``ray`` on the whole stack, by the examples: data from and models to S3, and nothing of Ray left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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
_TASKS = """
import ray

@ray.remote(scheduling_strategy="SPREAD")
def version():
    import weft_alpha
    return weft_alpha.__version__

ray.init()
print("versions", ray.get([version.remote() for _ in range(2)]))
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
def clothes(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clothes(stack, tmp_path_factory.mktemp("clothes"))


def make_clothes(stack: Stack, folder: Path) -> Path:
    """The example's pictures, here and in S3."""
    subprocess.run([sys.executable, str(EXAMPLES / "data/fashion.py"), str(folder)], check=True)
    stack.weft("data", "put", str(folder), "default:fashion-data")
    stack.weft("data", "create", "default:fashion-models")
    return folder


def check_clothes(stack: Stack, job: weft.Job, clothes: Path, folder: Path, accuracy: float) -> None:
    """Both learners' workers trained, and what came to S3 is the model that the log speaks of."""
    said = lines(job, 1)
    assert sorted(line[-1] for line in said if "worker" in line and "on learner" in line) == ["1", "2"], said
    [final] = [line for line in said if line.startswith("test accuracy")]
    assert float(final.split()[2]) >= accuracy
    stack.weft("download", job.id, "--trainedmodel", "--unpack", "-o", str(folder))
    out = run(stack, python_of(stack, "ray"), str(FASHION / "evaluate.py"), str(folder), str(clothes))
    assert float(out.split("accuracy:")[1].split()[0]) == pytest.approx(float(final.split()[2]), abs=1e-4)


def check_packages(stack: Stack, folder: Path) -> None:
    """A job's packages are built on the outer cluster, and the workers of the job's own cluster have them."""
    code = folder / "code"
    make_wheel(code / "wheels", "weft-alpha", "1.2")
    (code / "tasks.py").write_text(_TASKS)
    framework = {"name": "ray", "command": "python tasks.py", "packages": "weft-alpha", "wheels": "wheels/*.whl"}
    wanted = manifest("", engine="ray", learners=2, memory="1 GiB", framework=framework)
    job = completed(stack.train(wanted, code))
    assert [line for line in lines(job, 1) if line.startswith("versions")] == ["versions ['1.2', '1.2']"]
    assert job.raw["packages"]["lock"][0]["name"] == "weft-alpha"


# The image's first job builds its environment.
@pytest.mark.timeout(1500)
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


@pytest.mark.timeout(1500)
def test_clothes_on_a_ray_cluster(tmp_path: Path) -> None:
    """The job's own cluster inside of another, whose token and address its programs never see."""
    with RayCluster(cpus=4, memory=8 << 30) as cluster:
        engine = {"type": "ray", "address": cluster.address, "token": cluster.token}
        settings = {"WEFT_ENGINES": json.dumps({"local": {"type": "local"}, "ray": engine})}
        with running(tmp_path / "stack", settings) as stack:
            data = make_clothes(stack, tmp_path / "clothes")
            few = {"engine": "ray", "framework.command": "python train.py --epochs 2"}
            job = completed(stack.client.train(FASHION / "manifest.yml", FASHION, overrides=few))
            check_clothes(stack, job, data, tmp_path / "model", 0.5)
            check_packages(stack, tmp_path)
            eventually(
                lambda: not cluster.actors("weft-") and not cluster.supervisors("weft-"),
                "the outer cluster is free again",
            )
