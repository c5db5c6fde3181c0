"""The images' folders: locks that are whole, and Dockerfiles that use them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from weft_core.catalogue import Catalogue, Image

IMAGES = Catalogue.load().images


def pins(path: Path) -> dict[str, str]:
    """Name, as pip compares names → version; every line pins one."""
    found = {}
    for line in path.read_text().splitlines():
        requirement = line.partition("#")[0].strip()
        if requirement:
            name, separator, version = requirement.partition("==")
            assert separator, f"{path}: {line!r} is no pin"
            assert re.fullmatch(r"[\w.]+", version), f"{path}: {line!r} is one build of a version"
            name = name.partition("[")[0]  # extras are what more of it is installed, not another package
            found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return found


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.reference)
def test_the_lock_holds_what_is_asked_for_and_what_the_agent_needs(image: Image) -> None:
    asked, locked = pins(image.lock.with_suffix(".in")), pins(image.lock)
    assert {name: locked.get(name) for name in asked} == asked
    assert {"boto3", "psutil"} <= asked.keys()
    assert {"botocore", "s3transfer", "urllib3"} <= locked.keys(), "boto3's own requirements are not locked"


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.reference)
def test_the_dockerfile_uses_the_lock_and_runs_the_agent_as_nobody_special(image: Image) -> None:
    dockerfile = (image.folder / "Dockerfile").read_text()
    for framework in ("torch", "tf"):
        dockerfile = dockerfile if framework not in image.lock.stem else dockerfile.replace("${FRAMEWORK}", framework)
    assert f"{image.folder.name}/{image.lock.name}" in dockerfile
    assert image.reference in dockerfile, "its head says how to build another version"
    assert re.findall(r"^USER (.*)", dockerfile, re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["python", "-m", "weft_trainer"]' in dockerfile
    for copied in re.findall(r"^COPY (?!--from)(\S+)", dockerfile.replace("${FRAMEWORK}", "torch"), re.MULTILINE):
        assert (image.folder.parent / copied).exists(), f"{copied} is not in the context"


def test_builds_can_be_run() -> None:
    builds = [image.build for image in IMAGES if image.build]
    assert builds
    assert all(os.access(build, os.X_OK) for build in builds)


def test_the_same_package_has_the_same_version_in_all_images() -> None:
    versions: dict[str, set[str]] = {}
    for image in IMAGES:
        for name, version in pins(image.lock).items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
