"""What the service and the agent each know about packages, and have to know alike."""

from __future__ import annotations

import json

from weft_core import packages, requirements
from weft_core.launch import Resources
from weft_core.manifest import Manifest
from weft_core.manifest.models import Framework
from weft_trainer.packages import fixed
from weft_trainer.packages.request import REQUEST_VARIABLE, SECRET_VARIABLE, BuildRequest

FRAMEWORK = {"name": "pytorch", "version": "2.13.0", "launcher": "torchrun", "image": "pytorch:2.13.0"}


def test_the_same_packages_of_an_image_stay() -> None:
    assert requirements.FIXED.pattern == fixed._FIXED.pattern


def test_the_agent_reads_the_services_request() -> None:
    index = {"url": "https://packages.example.com/simple", "secret": "index-password"}
    asked = Framework(**FRAMEWORK, command="x", packages=["einops"], index=index)
    job = Manifest(name="job", engine="local", resources=Resources(8, 2, 1 << 30), framework=asked)
    made = packages.build_manifest(job, "https://mirror.example.com/simple", ["a" * 64])
    read = BuildRequest.parse(made.env[REQUEST_VARIABLE])
    assert (read.packages, read.index, read.known) == (["einops"], index["url"], ["a" * 64])
    assert made.secrets == {SECRET_VARIABLE: "index-password"}
    assert (made.resources.cpus, made.resources.gpus) == (4, 0)
    assert packages.indexes(json.loads(made.model_dump_json())) == (index["url"], "https://mirror.example.com/simple")
