"""A user's machine on which `weft run` trains programs that need packages of PyPI."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.stack import ENVIRONMENTS, REPOSITORY


class Machine:
    """Each list of packages is built once on a machine, as environments are, and built anew after a change of the code
    that builds it. The build itself: tests/e2e/test_packages.py.

    Args:
        home: the user's home, an empty folder.
    """

    def __init__(self, home: Path) -> None:
        code = sorted((REPOSITORY / "trainer_images/runtime/weft_trainer/packages").glob("*.py"))
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()[:12]
        kept = Path(ENVIRONMENTS) / f"packages-{digest}"
        kept.mkdir(parents=True, exist_ok=True)
        (home / ".cache/weft").mkdir(parents=True)
        (home / ".cache/weft/packages").symlink_to(kept)
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "HF_", "AWS_"))}
        self._environment = outside | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
        }

    @contextmanager
    def running(self, manifest: Path, code: Path, work: Path, *options: str | Path) -> Iterator[subprocess.Popen[str]]:
        """The run of a manifest, in ``work/out``."""
        with (Path(ENVIRONMENTS) / "packages.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a build that another process has begun would be refused
            with subprocess.Popen(
                ["weft", "run", manifest, code, "--out", work / "out", *options],
                cwd=work,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                try:
                    yield process
                except BaseException:
                    process.terminate()
                    raise

    def run(self, manifest: Path, code: Path, work: Path, *options: str | Path) -> str:
        """What the learners of a run print that completes; ``[2] …`` is of the second."""
        with self.running(manifest, code, work, *options) as process:
            said, errors = process.communicate()
        assert process.returncode == 0, f"{said}\n{errors}"
        assert "COMPLETED" in errors
        return said


def tiny_llm(folder: Path, texts: int) -> Path:
    """``folder`` with a tiny language model as `team/tiny` in the Hub's cache, and as many sentences beside it."""
    subprocess.run([sys.executable, REPOSITORY / "examples/data/tiny_llm.py", folder, str(texts)], check=True)
    cached = folder / "hub/models--team--tiny"
    snapshot = cached / "snapshots/0a1b2c3d"
    snapshot.parent.mkdir(parents=True)
    (folder / "model").rename(snapshot)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(snapshot.name)
    return folder
