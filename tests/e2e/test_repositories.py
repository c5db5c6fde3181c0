"""Code from git repositories: the commit of the submit, for every attempt and rerun, and never the secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.e2e.stack import ENVIRONMENTS, Stack, lines, manifest
from tests.git_server import Repository, git_server

import weft

SAY = "import os\nprint('code', {!r}, sorted(os.listdir()))\n"
SECRET = "s3cret-of-the-repository"


def test_a_public_repository(stack: Stack, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "git" / "public")
    first = repository.commit({"jobs/say.py": SAY.format("first"), "README.md": "more"})
    with git_server(tmp_path / "git") as server:
        url = f"{server.url}/public/.git"
        wanted = manifest("python say.py", repo={"url": url, "ref": "main", "path": "jobs"}, learners=2)
        # It lies in a folder with a file, which is not sent.
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "other.py").write_text("")
        job = stack.client.job(stack.weft("train", str(stack.write(tmp_path / "job", wanted))).stdout.strip())
        assert job.wait().state == "COMPLETED", job.refresh().reason
        repository.commit({"jobs/say.py": SAY.format("second")})
        again = job.rerun()
        assert again.wait().state == "COMPLETED", again.refresh().reason
        newest = stack.train(wanted, None)
        assert newest.wait().state == "COMPLETED"
        with pytest.raises(weft.WeftError, match=r"repo\.ref: the repository can't be read: it has no branch or tag"):
            stack.train(wanted | {"repo": {"url": url, "ref": "lost"}}, None)
        gone = stack.train(wanted | {"repo": {"url": url, "ref": "1" * 40}}, None)
        assert gone.wait(check=False).state == "FAILED"
    assert lines(job, 1) == lines(job, 2) == lines(again, 1) == ["code first ['say.py']"], "nor is .git there"
    assert lines(newest, 1) == ["code second ['say.py']"]
    assert any(first[:12] in event.message for event in job.events() if event.kind == "learner")
    assert f"commit {first} (main) of {url}, folder jobs" in " ".join(stack.weft("show", job.id).stdout.split())
    assert gone.refresh().raw["error_code"] == "C102"
    assert "has no commit 1111" in gone.refresh().reason
    assert not job.refresh().attempts[0].learners[0].leftovers, "code is no leftover"


def test_a_private_repository_and_its_model(stack: Stack, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "git" / "private")
    commit = repository.commit({"say.py": "import os, sys\nprint('private')\nprint(sorted(os.environ.items()))\n"})
    stack.client.secrets.set("git-password", f"team:{SECRET}")
    with git_server(tmp_path / "git", f"team:{SECRET}") as server:
        repo = {"url": f"{server.url}/private/.git", "secret": "git-password"}
        stores = [{"training_results": {"model": "from-a-repository"}}]
        command = "python say.py && echo 1 > $RESULT_DIR/model"
        job = stack.train(manifest(command, repo=repo, data_stores=stores), None)
        assert job.wait().state == "COMPLETED", job.refresh().reason
        with pytest.raises(weft.WeftError, match="does not exist or is private"):
            stack.train(manifest("true", repo={"url": repo["url"]}), None)
    said = lines(job)
    assert said[0] == "private"
    told = " ".join([*said, *(event.message for event in job.events()), str(job.refresh().raw)])
    assert SECRET not in told
    assert not any(SECRET.encode() in path.read_bytes() for path in stack.home.glob("**/runs/**/*") if path.is_file())
    shown = stack.json("models", "show", "from-a-repository@1")
    assert shown["lineage"]["repo"]["commit"] == commit
    assert commit in stack.weft("models", "show", "from-a-repository@1").stdout


def test_a_run_without_a_server(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "git" / "private")
    repository.commit({"say.py": "print('here')\n"})
    job = {"name": "desk", "framework": {"name": "python", "version": "3.11", "command": "python say.py"}}
    with git_server(tmp_path / "git", f"team:{SECRET}") as server:
        repo = {"url": f"{server.url}/private/.git", "secret": "git-password"}
        (tmp_path / "manifest.yml").write_text(yaml.safe_dump(job | {"repo": repo}))
        (tmp_path / "home").mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WEFT_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path / "home"),
            "WEFT_ENVIRONMENTS_DIR": ENVIRONMENTS,
            "GIT_PASSWORD": f"team:{SECRET}",
        }

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["weft", "run", "manifest.yml", *arguments],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )

        done = run("--secret", "git-password")
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
        assert "give its value with --secret git-password" in " ".join(run().stderr.split())
    assert SECRET not in done.stdout + done.stderr
