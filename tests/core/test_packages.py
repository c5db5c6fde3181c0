"""Rules about packages of which the service and the agent have a copy each: the copies are equal."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from weft_core import packages, requirements
from weft_core.launch import Resources
from weft_core.manifest import Manifest
from weft_core.manifest.models import Framework
from weft_core.requirement_files import read_code_files
from weft_trainer.packages import fixed
from weft_trainer.packages.request import REQUEST_VARIABLE, SECRET_VARIABLE, BuildRequest

FRAMEWORK = {"name": "pytorch", "version": "2.13.0", "launcher": "torchrun", "image": "pytorch:2.13.0"}


def test_the_same_packages_of_an_image_stay() -> None:
    assert requirements.FIXED.pattern == fixed._FIXED.pattern


def test_the_agent_reads_the_services_request() -> None:
    index = {"url": "https://packages.example.com/simple", "secret": "index-password"}
    asked = Framework(**FRAMEWORK, command="x", packages=["einops"], index=index)
    job = Manifest(name="job", engine="local", resources=Resources(8, 2, 1 << 26), framework=asked)
    made = packages.build_manifest(job, "https://mirror.example.com/simple", ["a" * 64])
    read = BuildRequest.parse(made.env[REQUEST_VARIABLE])
    assert (read.packages, read.index, read.known) == (["einops"], index["url"], ["a" * 64])
    assert made.secrets == {SECRET_VARIABLE: "index-password"}
    assert made.resources == Resources(cpus=4, gpus=0, memory=1 << 30)
    large = job.model_copy(update={"resources": Resources(1, 0, 8 << 30)})
    assert packages.build_manifest(large, None).resources == large.resources
    assert packages.indexes(json.loads(made.model_dump_json())) == (index["url"], "https://mirror.example.com/simple")


@pytest.mark.parametrize(
    ("name", "text", "all_code"),
    [
        ("pyproject.toml", "[tool.uv.sources]\nlib = {path='lib'}\n", True),
        ("pyproject.toml", "[tool.uv.sources]\nlib = { path = 'lib' }\n", True),
        ("pyproject.toml", "[tool.uv.sources]\nlib = {workspace = true}\n", True),
        ("pyproject.toml", "[project]\ndependencies = ['lib @ file:lib']\n", True),
        ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", True),
        ("pyproject.toml", "[project]\ndependencies = ['pathspec == 1']\n", False),
        ("requirements.txt", "-e ./lib\n", True),
        ("requirements.txt", "lib @ git+https://git.example.com/lib\n", False),
    ],
)
def test_a_list_with_folders_of_the_code_decides_with_all_of_it(name: str, text: str, all_code: bool) -> None:
    framework = Framework(**FRAMEWORK, command="x", requirements=name)
    digests = set()
    for sha256 in ("a" * 64, "b" * 64):
        bundle = io.BytesIO()
        with zipfile.ZipFile(bundle, "w") as archive:
            archive.writestr(name, text)
        with zipfile.ZipFile(bundle) as archive:
            files, problems = read_code_files(archive, framework, sha256, None)
        assert not problems
        digests.add(files.digest)
    assert (len(digests) == 2) == all_code
