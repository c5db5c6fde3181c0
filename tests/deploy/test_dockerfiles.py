"""The Dockerfiles of API and worker, without a container engine; tests/containers builds them on one.

The files that they copy exist, they install exactly the packages that the code imports, and their health checks work.
"""

from __future__ import annotations

import ast
import http.server
import importlib.metadata
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pathspec import GitIgnoreSpec
from sqlalchemy import func
from tests.servers import free_port

from weft_core.store.database import Database
from weft_core.store.models import EngineStatus

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/docker"
IMAGES = ("api", "worker")
# Whose code runs in each image, besides `core`: the chart runs `weft_embedded.forward` in the API's.
OURS = {"api": ["api/weft_api", "embedded/weft_embedded/forward.py"], "worker": ["workers/weft_workers"]}


def instructions(image: str) -> list[str]:
    """Of the Dockerfile, a line each, without comments."""
    text = re.sub(r"^#.*\n", "", (FOLDER / f"{image}.Dockerfile").read_text(), flags=re.MULTILINE)
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line]


def copied(image: str) -> list[str]:
    """What is copied out of the context."""
    found = []
    for line in instructions(image):
        if line.startswith("COPY ") and "--from=" not in line:
            found += [word for word in line.split()[1:-1] if not word.startswith("--")]
    return found


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_copied_is_in_the_context(image: str) -> None:
    ignored = GitIgnoreSpec.from_lines((ROOT / ".dockerignore").read_text().splitlines())
    needed = [path for path in copied(image) if path != "."]
    assert f"deploy/docker/{image}-healthy" in needed
    # What the wheel is made of.
    needed += [
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "migrations/env.py",
        "core/weft_core/settings.py",
        "api/weft_api/app.py",
    ]
    needed += ["workers/weft_workers/app.py", "embedded/weft_embedded/forward.py", "cli/weft/client.py"]
    needed += ["data/weft_data/run.py"]
    needed += ["trainer_images/catalogue.toml", "examples/imagenet-resnet50/pytorch/train.py"]
    for path in needed:
        assert (ROOT / path).exists(), path
        assert not ignored.match_file(path), path
    for other in (".env", ".git/config", ".venv/bin/python", "tests/conftest.py", "api/weft_api/dashboard/static/x.js"):
        assert ignored.match_file(other), other


@pytest.mark.parametrize("image", IMAGES)
def test_dependencies_come_before_sources(image: str) -> None:
    """A change of a source file must not reach the layers with the packages."""
    lines = instructions(image)
    (everything,) = [place for place, line in enumerate(lines) if line == "COPY . ."]
    packages = next(place for place, line in enumerate(lines) if "--requirement pyproject.toml" in line)
    assert packages < everything
    before = [line for line in lines[:packages] if line.startswith("COPY ") and "--from=" not in line]
    assert not [line for line in before if re.search(r" (api|cli|core|data|embedded|workers)\b", line)]
    installs = [line for line in lines if line.startswith("RUN ") and "uv pip install" in line]
    assert len(installs) == 2
    assert all("--mount=type=cache,target=/root/.cache/uv" in line for line in installs)
    assert "UV_LINK_MODE=copy" in " ".join(lines)
    # The finished image has the packages in one layer and Weft in the next.
    final = lines[max(place for place, line in enumerate(lines) if line.startswith("FROM ")) :]
    brought = [line.split()[1] for line in final if line.startswith("COPY --from=")]
    assert brought == ["--from=packages", "--from=weft"]


def extras(image: str) -> list[str]:
    (line,) = [line for line in instructions(image) if "--requirement pyproject.toml" in line]
    return re.findall(r"--extra (\w+)", line)


def installed(image: str) -> set[str]:
    """All distributions that the Dockerfile installs, by the metadata of those that are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo = [Requirement(line) for line in project["dependencies"]]
    todo += [Requirement(f"weft[{','.join(extras(image))}]")]
    found: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in found:
            continue
        found.add(key)
        if key[0] == "weft":
            todo += [
                Requirement(text) for extra in requirement.extras for text in project["optional-dependencies"][extra]
            ]
            continue
        for text in importlib.metadata.requires(requirement.name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(
                wanted.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                todo.append(wanted)
    return {name for name, _ in found}


def imported(path: Path) -> Iterator[str]:
    """Top-level names that a file imports when it runs."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    for node in walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_what_its_code_imports_and_not_what_the_others_does(image: str) -> None:
    has = installed(image)
    owners = importlib.metadata.packages_distributions()
    for place in ["core/weft_core", *OURS[image]]:
        for path in [ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"):
            for name in set(imported(path)):
                if name not in sys.stdlib_module_names and not name.startswith("weft"):
                    holders = {canonicalize_name(holder) for holder in owners[name]}
                    assert holders & has, f"{path.relative_to(ROOT)} imports {name}, which the {image} image lacks"
    assert not has & ({"kubernetes"} if image == "api" else {"fastapi", "arro3-core"})


def test_the_worker_brings_py_spy_and_uv() -> None:
    assert "py-spy" in installed("worker")
    assert any(
        line.endswith("--require-hashes --requirement uv.lock")
        for line in instructions("worker")
        if "--extra worker" in line
    )


# --- health checks ---


@pytest.mark.parametrize("image", IMAGES)
def test_a_health_check_can_be_run(image: str) -> None:
    script = FOLDER / f"{image}-healthy"
    assert os.access(script, os.X_OK)
    assert f"COPY --chmod=0755 deploy/docker/{image}-healthy /usr/local/bin/{image}-healthy" in instructions(image)
    assert script.read_text().startswith("#!/opt/weft/bin/python")  # where the Dockerfile puts it


def check(image: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / f"{image}-healthy")]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """The port of something that gives this one answer to ``/readyz``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield str(server.server_port)
        server.shutdown()
        thread.join()


def test_the_apis_health_check() -> None:
    """What the API itself answers is in tests/api; this is what the script makes of it."""
    with answering(200, b'{"status": "ready"}') as port:
        done = check("api", WEFT_API__PORT=port)
        assert (done.returncode, done.stdout) == (0, '{"status": "ready"}\n')
    with answering(503, b'{"checks": {"postgres": "away"}}') as port:
        done = check("api", WEFT_API__PORT=port)
        assert (done.returncode, done.stdout) == (1, '{"checks": {"postgres": "away"}}\n')
    done = check("api", WEFT_API__PORT=str(free_port()))
    assert done.returncode == 1
    assert done.stderr.startswith("the API does not answer: ")
    assert "Traceback" not in done.stderr


def test_workers_health_check(database: Database, database_url: str) -> None:
    assert check("worker", WEFT_DATABASE_URL=database_url).returncode == 1
    with database.transaction() as session:
        session.add(EngineStatus(name="local", type="local"))
    assert "no engine has been looked at" in check("worker", WEFT_DATABASE_URL=database_url).stderr
    with database.transaction() as session:
        session.get_one(EngineStatus, "local").seen_at = func.now()
    assert check("worker", WEFT_DATABASE_URL=database_url).returncode == 0
    done = check("worker", WEFT_DATABASE_URL=f"postgresql://weft:secret@127.0.0.1:{free_port()}/weft")
    assert done.returncode == 1
    assert done.stderr.startswith("the database does not answer: ")
    assert "secret" not in done.stderr
