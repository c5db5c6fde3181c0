"""Small packages for tests, as wheels, an index that asks for a password, and environments to install them into."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), program: bool = False, text: str = ""
) -> Path:
    """A wheel of the package ``name``, whose module says its version.

    Args:
        folder: for the wheel.
        requires: requirements.
        program: whether it has a command of its name, which prints the version.
        text: more of the module.
    """
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n\n\ndef main() -> None:\n    print(__version__)\n{text}",
        f"{about}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {r}" for r in requires),
            ]
        )
        + "\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if program:
        files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{name} = {module}:main\n"
    record = "".join(f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in files.items())
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{about}/RECORD", record + f"{about}/RECORD,,\n")
    return wheel


def make_project(folder: Path, name: str, version: str, requires: Sequence[str] = (), more: str = "") -> Path:
    """A folder with the sources of the package ``name``, which uv builds with nothing else.

    Args:
        requires: requirements.
        more: more of its pyproject.toml.
    """
    module = name.replace("-", "_")
    (folder / module).mkdir(parents=True, exist_ok=True)
    (folder / module / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (folder / "pyproject.toml").write_text(
        f"[project]\nname = {name!r}\nversion = {version!r}\nrequires-python = '>=3.11'\n"
        f"dependencies = {list(requires)!r}\n"
        "[build-system]\nrequires = ['uv_build']\nbuild-backend = 'uv_build'\n"
        f"[tool.uv.build-backend]\nmodule-root = ''\n{more}"
    )
    return folder


def pip_environment(folder: Path) -> Path:
    """Make an environment that has pip and nothing else, and return its Python.

    It gets a copy of this environment's pip: to install the pip that comes with Python takes twenty times as long.
    """
    try:
        pip = importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        for name in {file.parts[0] for file in pip.files or () if file.parts[0] != ".."}:
            shutil.copytree(str(pip.locate_file(name)), packages / name)
    return folder / "bin" / "python"


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@dataclass
class Index:
    """A private index."""

    url: str
    asked: list[str] = field(default_factory=list)
    """The paths of all requests that came with the password."""
    refused: int = 0


@contextmanager
def private_index(
    folder: Path, wheels: Sequence[Path], user: str, password: str, host: str = "127.0.0.1"
) -> Iterator[Index]:
    """Serve wheels as an index (PEP 503) at an address of this machine, to callers with this password."""
    for wheel in wheels:
        place = folder / "simple" / wheel.name.split("-")[0].replace("_", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / wheel.name).write_bytes(wheel.read_bytes())
        links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in sorted(place.glob("*.whl")))
        (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    index = Index("")
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                index.refused += 1
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="packages"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            index.asked.append(self.path)
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nobody reads it."""

    server = ThreadingHTTPServer((host, 0), partial(Handler, directory=str(folder)))
    index.url = f"http://{host}:{server.server_port}/simple"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
