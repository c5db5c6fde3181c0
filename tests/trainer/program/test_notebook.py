"""JupyterLab as a program: the real one, in an environment of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.e2e.stack import REPOSITORY
from tests.environments import FIRST_RUN, python_with

RUNTIME = REPOSITORY / "trainer_images/runtime"
JUPYTERLAB = "jupyterlab==4.6.6"

pytestmark = pytest.mark.timeout(FIRST_RUN)  # the first run installs it


class Learner:
    """A learner's folders, and its processes."""

    def __init__(self, folder: Path) -> None:
        self.code, self.checkpoints, self.results = (folder / name for name in ("code", "checkpoints", "results"))
        for each in (self.code, self.checkpoints, self.results, folder / "home"):
            each.mkdir()
        self.log = folder / "log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(RUNTIME),
            "CHECKPOINT_DIR": str(self.checkpoints),
            "RESULT_DIR": str(self.results),
        }
        self.command = [str(python_with(JUPYTERLAB)), "-m", "weft_trainer.notebook"]

    @contextmanager
    def running(self) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
        """The process, its address and its token."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [*self.command, "--idle", "7200"],
                cwd=self.code,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            told = subprocess.run(
                [*self.command, "--address"], env=self.environment, capture_output=True, text=True, check=True
            )
            address = json.loads(told.stdout)
            yield process, f"http://127.0.0.1:{address['port']}", address["token"]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # JupyterLab, too
            process.wait()


def ask(url: str, token: str, content: Mapping[str, object] | None = None) -> dict[str, object]:
    body = None if content is None else json.dumps(content).encode()
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    with urlopen(Request(url, body, headers, method="GET" if body is None else "PUT"), timeout=300) as answer:
        answered: dict[str, object] = json.loads(answer.read())
    return answered


def test_its_files_outlive_it_and_its_token_stays_secret(tmp_path: Path) -> None:
    learner = Learner(tmp_path)
    (learner.code / "util.py").write_text("x = 1\n")
    with learner.running() as (process, url, token):
        assert ask(f"{url}/api/contents/util.py", token)["content"] == "x = 1\n"
        ask(f"{url}/api/contents/new.txt", token, {"type": "file", "format": "text", "content": "new"})
        with pytest.raises(HTTPError, match="403"):
            ask(f"{url}/api/contents/util.py", "wrong")
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert (learner.results / "new.txt").read_text() == "new"
    assert token not in learner.log.read_text()

    # The next attempt: the checkpoint is back, and the code does not replace it.
    (learner.checkpoints / "util.py").write_text("x = 2\n")
    with learner.running() as (_, url, token):
        assert ask(f"{url}/api/contents/util.py", token)["content"] == "x = 2\n"
        assert ask(f"{url}/api/contents/new.txt", token)["content"] == "new"
