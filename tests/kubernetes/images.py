"""The trainer images for the nodes of the test cluster, laid out as their Dockerfiles lay them out."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.kubernetes.cluster import REPOSITORY, Cluster

from weft_core import __version__
from weft_workers.environments import EnvironmentBuilder

_AGENT = REPOSITORY / "trainer_images" / "runtime" / "weft_trainer"
_PYTHON = "/usr/bin/python3"  # of the test images' base
_PACKAGES = "lib/python3.11/site-packages"
_LENT = "/opt/weft/environments"
# Read at import, as the tests' own fixtures take WEFT_… out of the environment.
_ENVIRONMENTS = os.environ.get("WEFT_ENVIRONMENTS_DIR", str(Path.home() / ".cache/weft/environments"))
PYTHON = "python:3.11"
HOROVOD = "horovod:0.28.1-torch2.13"
RAY = "ray:2.60.0"


def load(cluster: Cluster, image: str, repository: str = "weft") -> str:
    """Make sure that every node has an image of the catalogue as it is now; returns its reference.

    Its environment, which may take a gigabyte, is not copied into it: the containers see this machine's.
    """
    name = f"{repository}/{image}"
    environment = _environment(image)
    cluster.lend(environment, f"{_LENT}/{environment.name}")
    mark = _mark(environment)
    if not cluster.has_image(name, mark):
        with tempfile.TemporaryDirectory(prefix="weft-image-") as folder:
            agent, overlay = Path(folder, "agent"), Path(folder, "overlay")
            shutil.copytree(_AGENT, agent, ignore=shutil.ignore_patterns("__pycache__"))
            if image == PYTHON:  # the tests build packages in this one only
                (agent / "bin").mkdir()
                for program in (Path(sysconfig.get_path("scripts"), "uv"), _AGENT.parents[1] / "pip-settings"):
                    shutil.copy2(program, agent / "bin")
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(agent)], check=True)
            _overlay(environment, overlay)
            cluster.image(
                name,
                "--python",
                *("--copy", f"{agent}:/opt/weft/agent/weft_trainer", f"{overlay}:/"),
                *("--env", "PATH=/opt/weft/environment/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"),
                *("--workdir", "/home/weft", "--entrypoint", shlex.join(["python", "-m", "weft_trainer"])),
            )
        cluster.mark_image(name, mark)
    return name


def load_agent(cluster: Cluster, repository: str = "weft") -> str:
    """The image `agent`, which brings the agent to images that have nothing but Python; returns its reference."""
    name = f"{repository}/agent:{__version__}"
    environment = _environment(PYTHON)
    mark = _mark(environment)
    if not cluster.has_image(name, mark):
        with tempfile.TemporaryDirectory(prefix="weft-image-") as folder:
            agent = Path(folder, "agent")  # the folder itself is for nobody else to read
            # No bytecode: a job under umask 077 may have left some in the environment that no other user can read.
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_AGENT, agent / "weft_trainer", ignore=ignore)
            shutil.copytree(environment / _PACKAGES / "psutil", agent / "psutil", ignore=ignore)
            cluster.image(name, "--copy", f"{agent}:/opt/weft/agent")
        cluster.mark_image(name, mark)
    return name


@functools.cache
def _environment(image: str) -> Path:
    """The image's environment, built if need be."""
    return EnvironmentBuilder(Path(_ENVIRONMENTS)).build(image).python.parents[1]


def _mark(environment: Path) -> str:
    """What tells one content from another: the environment's folder is named after its lock."""
    digest = hashlib.sha256(f"{environment.name}\0{Path(__file__).read_text()}".encode())
    for file in sorted(_AGENT.rglob("*.py")):
        digest.update(f"{file.relative_to(_AGENT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _overlay(environment: Path, overlay: Path) -> None:
    """What makes the folders an image: a virtual environment knows where it lies and whose Python it is."""
    there, lent = overlay / "opt/weft/environment", Path(_LENT, environment.name)
    (there / "bin").mkdir(parents=True)
    for program in environment.glob("bin/*"):
        copy = there / "bin" / program.name
        if program.name.startswith("python"):
            copy.symlink_to(_PYTHON)
        elif (text := program.read_bytes()).startswith(b"#!"):
            _, _, rest = text.partition(b"\n")
            copy.write_bytes(b"#!/opt/weft/environment/bin/python\n" + rest)
            copy.chmod(0o755)
        else:
            copy.symlink_to(lent / "bin" / program.name)
    (there / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (there / _PACKAGES).mkdir(parents=True)
    packages = f"import site; site.addsitedir({str(lent / _PACKAGES)!r})"
    (there / _PACKAGES / "weft.pth").write_text(f"/opt/weft/agent\n{packages}\n")
    (overlay / "home/weft").mkdir(parents=True)
    (overlay / "etc").mkdir()
    (overlay / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nweft:x:10001:10001::/home/weft:/bin/sh\n")
    (overlay / "etc/group").write_text("root:x:0:\nweft:x:10001:\n")
