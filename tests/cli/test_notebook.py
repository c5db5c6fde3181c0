"""``weft notebook``: the job that it submits.

JupyterLab itself: tests/trainer/program/test_notebook.py; the tunnels that lead to it: tests/api/test_tunnels.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Weft
from tests.cli.double import END, ID, Double, as_json, events, job, job_event

from weft.bundle import open_bundle
from weft.exits import ExitCode


def test_the_job_of_a_notebook(server: Double, weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/look.ipynb").write_text("{}")
    with open_bundle(tmp_path / "mine") as bundle:
        assert bundle is not None
        server.on("HEAD", f"code/{bundle.sha256}", as_json({}))
    ended = job(state="FAILED", reason="learner 1: exit code 1")
    server.on("GET", f"jobs/{ID}", as_json(ended))
    server.on("GET", f"jobs/{ID}/events", events(job_event(1, "FAILED", "learner 1: exit code 1"), END))
    done = weft(
        *("notebook", str(tmp_path / "mine"), "--framework", "pytorch", "--gpus", "1", "--idle", "90m"),
        *("--with", "pandas", "--set", "max_runtime=8h"),
    )
    assert (done.code, done.out) == (ExitCode.JOB_FAILED, f"{ID}\n")
    assert "learner 1: exit code 1" in done.err
    [sent] = server.requests("POST", "jobs")
    assert yaml.safe_load(sent.json["manifest"]) == {
        "name": "notebook",
        "gpus": 1,
        "framework": {
            "name": "pytorch",
            "packages": ["jupyterlab>=4,<5", "pandas"],
            "command": "python -m weft_trainer.notebook --idle 5400",
        },
    }
    assert (sent.json["code_sha256"], sent.json["set"]) == (bundle.sha256, {"max_runtime": "8h"})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--idle", "soon"], "'soon' is no duration; accepted: 30m, 2h, 1d, 0"),
        (["--job", ID, "."], "give a folder or --job, not both"),
        (["nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_it_does_not_accept(server: Double, weft: Weft, arguments: list[str], told: str) -> None:
    done = weft("notebook", *arguments)
    assert done.code in (ExitCode.USAGE, ExitCode.ERROR)
    assert told in " ".join(done.err.replace("│", " ").split())
    assert not server.requests("POST", "jobs")
