"""The commit of a repository in MODEL_DIR, by the real git from a real server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.git_server import Repository, git_server

from weft_core.repositories import authorization
from weft_trainer.errors import DataError
from weft_trainer.inputs import repository as module
from weft_trainer.inputs.repository import bring_repository
from weft_trainer.spec import RepositoryInput


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "git" / "project")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with git_server(tmp_path / "git") as server:
        yield f"{server.url}/project/.git"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "model"
    folder.mkdir(parents=True)
    return folder


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_exactly_that_commit_without_gits_own_folder(repository: Repository, url: str, model: Path) -> None:
    first = repository.commit({"train.py": "1", "lib/a.py": "a"})
    (repository.folder / "lib" / "run.sh").write_text("x")
    (repository.folder / "lib" / "run.sh").chmod(0o755)
    second = repository.commit({"train.py": "2"})
    repository.commit({"train.py": "3"})
    assert bring_repository(RepositoryInput(url, first), model) == f"commit {first[:12]} of {url}"
    assert files(model) == {"train.py": "1", "lib/a.py": "a"}
    other = model.with_name("other")
    other.mkdir()
    bring_repository(RepositoryInput(url, second), other)
    assert files(other) == {"train.py": "2", "lib/a.py": "a", "lib/run.sh": "x"}
    assert os.access(other / "lib" / "run.sh", os.X_OK)
    assert sorted(path.name for path in model.parent.iterdir()) == ["model", "other"], "nothing else is left"


def test_a_folder_of_it(repository: Repository, url: str, model: Path) -> None:
    commit = repository.commit({"train.py": "1", "work/digits/train.py": "2", "work/digits/lib/a.py": "a"})
    bring_repository(RepositoryInput(url, commit, "work/digits"), model)
    assert files(model) == {"train.py": "2", "lib/a.py": "a"}
    with pytest.raises(DataError, match=r"has no folder 'work/letters' \(repo\.path\)") as caught:
        bring_repository(RepositoryInput(url, commit, "work/letters"), model)
    assert caught.value.error_code == "C102"


def test_a_private_one(repository: Repository, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repository.commit({"train.py": "1"})
    seen: list[list[str]] = []
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        seen.append(command)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    with git_server(tmp_path / "git", "me:s3cret") as server:
        private = f"{server.url}/project/.git"
        bring_repository(RepositoryInput(private, commit, authorization=authorization("me:s3cret")), model)
        for wrong in (None, authorization("me:other")):
            with pytest.raises(DataError, match="does not exist any more, or its secret does not open it") as caught:
                bring_repository(RepositoryInput(private, commit, authorization=wrong), model)
            assert "Basic" not in str(caught.value)
    assert files(model) == {"train.py": "1"}
    said = str(seen)
    assert "s3cret" not in said
    assert authorization("me:s3cret") not in said
    assert "s3cret" not in repr(RepositoryInput(private, commit, authorization="Basic s3cret"))


def test_settings_of_the_machine_do_not_matter(
    repository: Repository, url: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit({"train.py": "1", ".gitattributes": "*.py filter=evil"})
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    (home / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch hooked\n")
    (home / "hooks" / "post-checkout").chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[core]\n hooksPath = {home}/hooks\n[filter "evil"]\n smudge = echo evil\n'
        '[url "http://127.0.0.1:1/"]\n insteadOf = http://\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_TRACE_CURL", str(tmp_path / "trace"))
    bring_repository(RepositoryInput(url, commit), model)
    assert files(model)["train.py"] == "1"
    assert not (model / "hooked").exists()
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "trace").exists()


def test_what_can_not_be_brought(
    repository: Repository, url: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit({"train.py": "1"})
    with pytest.raises(DataError, match=f"has no commit {'1' * 40} any more") as caught:
        bring_repository(RepositoryInput(url, "1" * 40), model)
    assert caught.value.error_code == "C102"
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with pytest.raises(DataError, match=r"git can't fetch http://127\.0\.0\.1:9/x") as caught:
        bring_repository(RepositoryInput("http://127.0.0.1:9/x", commit), model)
    assert caught.value.error_code == "C102"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DataError, match="the image has no git") as caught:
        bring_repository(RepositoryInput(url, commit), model)
    assert caught.value.error_code == "C102"
    assert not list(model.iterdir())
