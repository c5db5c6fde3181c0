"""The images: locks that are whole, a Dockerfile that uses them, and a smoke test that holds in their environments."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.environments import FIRST_RUN, python_of
from tests.recorded import recorded

from weft_core import __version__
from weft_core.catalogue import Catalogue, Image

IMAGES = Catalogue.load().images
FOLDER = Path(__file__).parents[2] / "trainer_images"

# Modules that a program may compile at each start: a file takes a millisecond or a few.
_FEW = 20
# Runs a program, and names the modules of the environment that it imported and of which there is no bytecode.
_COMPILED = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
found = [module for module in sys.modules.values() if (getattr(module, "__file__", None) or "").startswith(sys.prefix)]
kept = {module.__name__: getattr(module, "__cached__", None) for module in found}
print("uncompiled:", sorted(name for name, path in kept.items() if path and not os.path.exists(path)))
"""


def images(*arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_IMAGE", "_INDEX_URL"))}
    return subprocess.run(
        [FOLDER / "images", *arguments], env=clean, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def pins(*paths: Path) -> dict[str, str]:
    """Name, as pip compares names → version; every line pins one."""
    found = {}
    for path in paths:
        for line in path.read_text().splitlines():
            requirement = re.split(r"[#;\\]", line)[0].strip()
            if requirement and not requirement.startswith("--hash="):
                name, separator, version = requirement.replace("===", "==").partition("==")
                assert separator, f"{path}: {line!r} is no pin"
                assert re.fullmatch(r"[\w.+]+", version), f"{path}: {line!r} is no version"
                name = name.partition("[")[0]  # extras are what more of it is installed, not another package
                found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return found


def whole(image: Image) -> dict[str, str]:
    """The pins of its environment for CPUs; a version without its build."""
    return {name: version.partition("+")[0] for name, version in pins(image.lock, *image.variants[:1]).items()}


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.reference)
def test_the_lock_holds_what_is_asked_for_and_what_the_agent_needs(image: Image) -> None:
    asked, locked = pins(image.lock.with_suffix(".in")), whole(image)
    assert locked == image.packages
    assert {name: locked.get(name) for name in asked} == asked
    assert {"boto3", "psutil"} <= asked.keys()
    assert {"botocore", "s3transfer", "urllib3"} <= locked.keys(), "boto3's own requirements are not locked"


LOCKS = sorted(FOLDER.glob("*/*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_package_of_a_lock_has_hashes(lock: Path) -> None:
    entries = re.findall(r"^[A-Za-z0-9].*(?:\n +.*)*", lock.read_text(), re.MULTILINE)
    assert len(entries) >= len(pins(lock)) > 0
    for entry in entries:
        assert re.search(r" --hash=sha256:[0-9a-f]{64}$", entry, re.MULTILINE), entry


@pytest.mark.parametrize("image", [image for image in IMAGES if image.variants], ids=lambda image: image.reference)
def test_the_variants_are_the_same_framework_and_share_nothing_with_the_lock(image: Image) -> None:
    cpu, cuda = (pins(path) for path in image.variants)
    framework = next(iter(cpu))
    assert cuda[framework.removesuffix("-cpu")] == cpu[framework].partition("+")[0]
    assert any(name.startswith("nvidia-") for name in cuda)
    assert not (cpu.keys() | cuda.keys()) & pins(image.lock).keys()


def test_the_dockerfile_installs_nothing_without_its_hash() -> None:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install .*?(?=&&|$)", text, re.MULTILINE)
    assert len(installs) == 5
    assert all("--require-hashes" in install for install in installs)


def test_the_dockerfile_runs_the_agent_as_nobody_special() -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text()
    # Root only in the smoke test, which steps down by itself.
    assert re.findall(r"^USER (.*)", dockerfile, re.MULTILINE) == ["10001:10001", "root", "10001:10001"]
    assert 'ENTRYPOINT ["python", "-m", "weft_trainer"]' in dockerfile
    for copied in re.findall(r"^COPY (?!--from|\$)(\S+)", dockerfile, re.MULTILINE):
        assert [*FOLDER.glob(copied)], f"{copied} is not in the context"


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_the_commands_that_build_all_images(variant: str) -> None:
    commands = [shlex.split(line) for line in images("--print", "--tool", "docker", "--variant", variant).splitlines()]
    assert len(commands) == 2 * len(IMAGES) + 1
    declared = set(re.findall(r"^ARG (\w+)", (FOLDER / "Dockerfile").read_text(), re.MULTILINE))
    for image, (smoke, learner) in zip(IMAGES, zip(commands[:-1:2], commands[1::2], strict=True), strict=True):
        assert smoke[smoke.index("--target") + 1] == "smoke"
        assert learner[learner.index("--target") + 1] == "learner"
        assert learner[learner.index("--tag") + 1] == f"weft/{image.reference}"
        given = dict(word.split("=", 1) for flag, word in itertools.pairwise(learner) if flag == "--build-arg")
        assert given.keys() <= declared
        assert (FOLDER / given["FOLDER"] / given["LOCK"]).samefile(image.lock)
        assert [FOLDER / given["VARIANTS"] / f"{name}.lock" for name in ("cpu", "cuda") if given["VARIANTS"]] == [
            *image.variants
        ]
        assert tuple(given["PIP_OPTIONS"].split()) == image.pip
        assert (FOLDER / given["BUILD"]).samefile(image.build or FOLDER)
        assert given["VARIANT"] == variant
    agent = commands[-1]
    assert agent[agent.index("--target") + 1] == "agent"
    assert agent[agent.index("--tag") + 1] == f"weft/agent:{__version__}"


def test_an_image_that_is_not_there() -> None:
    done = subprocess.run([FOLDER / "images", "caffe"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("images: 'caffe' is not in the catalogue, which has agent, horovod, ")


def smoke(image: Image, work: Path) -> None:
    """Run the smoke test in the image's environment, and note its lines; for PyTorch, also what it says of CUDA."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER / "runtime")}
    # As a learner, it can't store bytecode.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def run(device: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [
            python_of(image.reference),
            "-c",
            _COMPILED,
            FOLDER / "smoke.py",
            image.reference,
            device,
        ]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run("cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    cuda = run("cuda") if image.name == "pytorch" else None
    found = {"lines": done.stdout.splitlines(), "cuda": cuda and [cuda.returncode, cuda.stderr]}
    (work / "found.json").write_text(json.dumps(found))


@pytest.mark.timeout(FIRST_RUN)
@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.reference)
def test_the_smoke_test_in_the_environment_of_the_same_lock(image: Image) -> None:
    sources = [FOLDER / "smoke.py", FOLDER / "catalogue.toml", FOLDER / "runtime/weft_trainer/__init__.py"]
    name = f"smoke-{image.name}-{image.version}"
    work = recorded(name, image.reference, [*sources, Path(__file__)], partial(smoke, image))
    found = json.loads((work / "found.json").read_text())
    *said, uncompiled = found["lines"]
    assert uncompiled.count(",") < _FEW, f"the catalogue's `imports` lack what brings these: {uncompiled}"
    assert said[0].startswith(f"{image.reference} (cpu)")
    assert len(said) >= 3
    # And it notices what is not as it should be.
    if image.name == "pytorch":
        code, refusal = found["cuda"]
        assert code == 1
        assert "is not a build for CUDA" in refusal


def test_builds_can_be_run() -> None:
    builds = [image.build for image in IMAGES if image.build]
    assert builds
    assert all(os.access(build, os.X_OK) for build in builds)


def test_the_same_package_has_the_same_version_in_all_images() -> None:
    versions: dict[str, set[str]] = {}
    for image in IMAGES:
        for name, version in whole(image).items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def tool(folder: Path, name: str, answer: int) -> None:
    """A program that says that it was run, and ends ``info`` and ``version`` with ``answer``."""
    program = folder / name
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in info | version) echo "{name}: no daemon" >&2; exit {answer} ;; esac\n'
        f'echo "$0 $*" >>"{folder}/run"\n'
    )
    program.chmod(0o755)


def build_with(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "images"), *arguments, "python"]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


def test_the_tool_that_answers_builds_not_the_one_whose_client_is_there(tmp_path: Path) -> None:
    assert build_with(tmp_path).stderr.splitlines() == [
        "images: no tool to build with:",
        "  docker is not there",
        "  podman is not there",
        "  buildah is not there",
    ]
    tool(tmp_path, "docker", 1)
    tool(tmp_path, "podman", 0)
    assert build_with(tmp_path).returncode == 0
    assert {Path(line.split()[0]).name for line in (tmp_path / "run").read_text().splitlines()} == {"podman"}
    refused = build_with(tmp_path, "--tool", "docker")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[1] == "  docker does not answer: docker: no daemon"
    tool(tmp_path, "docker", 0)
    (tmp_path / "run").unlink()
    assert build_with(tmp_path).returncode == 0
    assert {Path(line.split()[0]).name for line in (tmp_path / "run").read_text().splitlines()} == {"docker"}
