"""The trainer images, built by `trainer_images/images` and smoke-tested: in the build, and as a user runs them."""

from __future__ import annotations

import sys
import time

import pytest
from tests.containers.engine import BUILD, REPOSITORY, Engine, run

from weft_core import __version__

FOLDER = REPOSITORY / "trainer_images"
REPOSITORY_NAME = "weft-test"
# And how many checks the smoke test of each has, by its own lines: an engine's client may lose the exit code.
IMAGES = {
    "python:3.11": 2,
    "pytorch:2.13.0": 3,
    "horovod:0.28.1-torch2.13": 4,
    "ray:2.60.0": 4,
    "tensorflow:2.21.0": 2,
}


def build(engine: Engine, image: str, tag: str) -> None:
    started = time.monotonic()
    program = (sys.executable, str(FOLDER / "images"), "--tool", engine.tool, "--repository", REPOSITORY_NAME)
    run(*program, image, timeout=2 * BUILD)
    engine.found(f"{tag}: build and smoke test", f"{time.monotonic() - started:.0f} s")
    engine.found(f"{tag}: size", engine.size(tag))


@pytest.mark.parametrize("image", IMAGES)
def test_it_is_built_and_passes_its_smoke_test(image: str, engine: Engine) -> None:
    tag = f"{REPOSITORY_NAME}/{image}"
    build(engine, image, tag)
    # The build's own may come from its cache, so once more: as user 10001, in the image that is shipped.
    said = engine.inside(
        tag, "python", "-", image, "cpu", options=("--shm-size", "1g"), stdin=(FOLDER / "smoke.py").read_text()
    )
    assert said.startswith(f"{image} (cpu)"), said
    assert said.count(": ok") == IMAGES[image], said
    assert engine.inside(tag, "id", "-u").strip() == "10001"
    # What users and the agent rely on in an environment.
    assert engine.inside(tag, "python", "-m", "pip", "--version").startswith("pip ")
    assert engine.inside(tag, "py-spy", "--version").startswith("py-spy ")


def test_the_agent_alone_serves_another_image(engine: Engine) -> None:
    """As the engine `kubernetes` does: the image copies the agent into a volume, which another image mounts."""
    tag, volume = f"{REPOSITORY_NAME}/agent:{__version__}", "weft-test-agent"
    build(engine, "agent", tag)
    engine("volume", "create", volume)
    try:
        engine("run", "--rm", "--user", "0", "--volume", f"{volume}:/agent", tag)
        options = ("--volume", f"{volume}:/opt/weft/agent:ro", "--env", "PYTHONPATH=/opt/weft/agent")
        said = engine.inside(
            "python:3.11-slim",
            "python3",
            "-c",
            "import psutil, weft_trainer; print(weft_trainer.__file__, psutil.__file__)",
            options=options,
        )
        assert said.split() == ["/opt/weft/agent/weft_trainer/__init__.py", "/opt/weft/agent/psutil/__init__.py"]
    finally:
        engine("volume", "rm", volume)
