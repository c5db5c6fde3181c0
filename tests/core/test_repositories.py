"""The commit of a ref, by git's own server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.git_server import GitServer, Repository, git_server

from weft_core.outgoing import Outgoing
from weft_core.repositories import RepositoryError, authorization, find_commit, split_credentials

DOOR = Outgoing(["127.0.0.1"])


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "git" / "team" / "project")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "git") as started:
        yield started


def test_branches_tags_and_commits(repository: Repository, server: GitServer) -> None:
    first = repository.commit({"a": "1"})
    repository.git("tag", "light")
    repository.git("tag", "--annotate", "v1", "--message=one")
    repository.git("branch", "feature/x")
    second = repository.commit({"a": "2"})
    repository.git("tag", "main", first)  # a branch comes before a tag of its name, as with `git clone --branch`
    url = f"{server.url}/team/project/.git"
    for ref, expected in [
        (None, second),
        ("HEAD", second),
        ("main", second),
        ("refs/heads/main", second),
        ("refs/tags/main", first),
        ("feature/x", first),
        ("light", first),
        ("v1", first),
        ("refs/tags/v1", first),
    ]:
        assert find_commit(DOOR, url, ref, None) == expected, ref
    asked = len(server.asked)
    assert find_commit(DOOR, url, "0" * 40, None) == "0" * 40
    assert len(server.asked) == asked, "a commit is taken as it is"
    with pytest.raises(RepositoryError, match="it has no branch or tag 'lost'") as caught:
        find_commit(DOOR, url, "lost", None)
    assert caught.value.of_ref
    with pytest.raises(RepositoryError, match="a commit id must be whole"):
        find_commit(DOOR, url, first[:8], None)


def test_many_branches(repository: Repository, server: GitServer) -> None:
    commit = repository.commit({"a": "1"})
    refs = "".join(f"create refs/heads/b{number:05} {commit}\n" for number in range(3000))
    (repository.folder / "refs.txt").write_text(refs)
    with (repository.folder / "refs.txt").open() as file:
        subprocess.run(["git", "update-ref", "--stdin"], cwd=repository.folder, stdin=file, check=True)
    assert find_commit(DOOR, f"{server.url}/team/project/.git", "b02999", None) == commit
    with pytest.raises(RepositoryError, match="does not answer"):
        find_commit(Outgoing(["127.0.0.1"], most_bytes=50_000), f"{server.url}/team/project/.git", "b02999", None)


def test_what_can_not_be_read(repository: Repository, server: GitServer, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="it has no commit yet"):
        find_commit(DOOR, f"{server.url}/team/project/.git", None, None)
    with pytest.raises(RepositoryError, match="does not exist or is private"):
        find_commit(DOOR, f"{server.url}/team/other", None, None)
    with pytest.raises(RepositoryError, match="host can't be found, or is one that this installation does not call"):
        find_commit(Outgoing([]), server.url.replace("http:", "https:"), None, None)
    with pytest.raises(RepositoryError, match="host can't be found"):
        find_commit(Outgoing([]), server.url.replace("http:", "https:"), "0" * 40, None)


def test_private_ones(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit({"a": "1"})
    with git_server(tmp_path / "git", "me:pass:word") as private:
        url = f"{private.url}/team/project/.git"
        assert find_commit(DOOR, url, "main", "me:pass:word\n") == commit
        for wrong in (None, "me:other", "token"):
            with pytest.raises(RepositoryError, match="does not exist or is private"):
                find_commit(DOOR, url, "main", wrong)


def test_credentials() -> None:
    assert split_credentials("me:pass:word") == ("me", "pass:word")
    assert split_credentials(" ghp_token\n") == ("x-access-token", "ghp_token")
    assert authorization("a:b") == "Basic YTpi"
