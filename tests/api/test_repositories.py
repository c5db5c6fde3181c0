"""Jobs whose code is in a git repository: pinned at submit, refused with a reason, and never with the secret shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import HELLO, Api, Person, code_of, zipped
from tests.git_server import Repository, git_server

from weft_core.settings import OutgoingSettings, Settings

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def api_settings(api_settings: Settings) -> Settings:
    return api_settings.model_copy(update={"outgoing": OutgoingSettings(allow=["127.0.0.1"])})


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "git" / "project")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with git_server(tmp_path / "git") as server:
        yield f"{server.url}/project/.git"


def manifest(url: str, *more: str) -> str:
    return HELLO + f"repo: {{{', '.join([f'url: {url!r}', *more])}}}\n"


def pinned(person: Person, job: dict[str, Any]) -> Any:
    """The job's repository, as its record has it."""
    return person.http.get(f"/api/v1/jobs/{job['id']}").json()["manifest"].get("repo")


def refusal(person: Person, text: str, **body: Any) -> dict[str, Any]:
    answer = person.http.post("/api/v1/jobs", json={"manifest": text, **body})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_manifest"), answer.text
    (found,) = answer.json()["problems"]
    assert "hunter2" not in answer.text
    return dict(found)


def test_a_job_is_pinned_and_its_rerun_too(api: Api, ann: Person, repository: Repository, url: str) -> None:
    first = repository.commit({"train.py": "1"})
    job = ann.submit(manifest(url, "ref: main", "path: a"))
    expected = {"url": url, "ref": "main", "commit": first, "path": "a"}
    assert pinned(ann, job) == expected
    events = ann.http.get(f"/api/v1/jobs/{job['id']}/events").json()["events"]
    assert f"the code is commit {first} (main) of {url}, folder a" in [event["message"] for event in events]
    definition = ann.http.get(f"/api/v1/jobs/{job['id']}/definition")
    assert definition.status_code == 404
    assert f"the job's code is commit {first}" in definition.text
    second = repository.commit({"train.py": "2"})
    assert pinned(ann, ann.submit(manifest(url)))["commit"] == second
    again = ann.http.post(f"/api/v1/jobs/{job['id']}/rerun").json()
    assert pinned(ann, again) == expected | {"ref": first}
    moved = ann.http.post(f"/api/v1/jobs/{job['id']}/rerun", json={"set": {"repo.ref": "main"}}).json()
    assert pinned(ann, moved)["commit"] == second
    attempt = api.attempt(job["id"])
    assert attempt.agents[0].start()["repo"] == {"url": url, "commit": first, "folder": "a", "authorization": None}
    checked = ann.http.post("/api/v1/manifests:validate", content=manifest(url)).json()
    assert checked["manifest"]["repo"]["commit"] == second


def test_a_secret_opens_a_private_one(
    api: Api, ann: Person, bob: Person, repository: Repository, tmp_path: Path
) -> None:
    commit = repository.commit({"train.py": "1"})
    ann.http.put("/api/v1/secrets/git", json={"value": "me:hunter2"})
    ann.http.put("/api/v1/secrets/wrong", json={"value": "hunter2-token"})
    with git_server(tmp_path / "git", "me:hunter2") as server:
        private = f"{server.url}/project/.git"
        job = ann.submit(manifest(private, "secret: git"))
        for more in ([], ["secret: wrong"]):
            found = refusal(ann, manifest(private, *more))
            assert found["path"] == "repo.url"
            assert "does not exist or is private" in found["message"]
        assert refusal(bob, manifest(private, "secret: git"))["path"] == "repo.secret", "it is not this project's"
    assert pinned(ann, job)["commit"] == commit
    shown = ann.http.get(f"/api/v1/jobs/{job['id']}").text + ann.http.get(f"/api/v1/jobs/{job['id']}/events").text
    assert "hunter2" not in shown
    spec = api.attempt(job["id"]).agents[0].start()
    assert spec["repo"]["authorization"] == "Basic bWU6aHVudGVyMg=="
    ann.http.delete("/api/v1/secrets/git")
    again = api.attempt(ann.submit(HELLO)["id"])
    assert again.agents[0].start()["repo"] is None


def test_what_is_refused(ann: Person, repository: Repository, url: str) -> None:
    repository.commit({"train.py": "1"})
    found = refusal(ann, manifest(url, "ref: lost"))
    assert (found["path"], found["found"]) == ("repo.ref", "lost")
    assert found["message"] == "the repository can't be read: it has no branch or tag 'lost'"
    assert "does not exist" in refusal(ann, manifest(url.replace("project", "other")))["message"]
    for address in ("http://127.0.0.2/x", "http://169.254.169.254/latest"):
        assert "expected https://" in refusal(ann, manifest(address))["message"]
        assert "expected https://" in refusal(ann, manifest(address, f"ref: {COMMIT}"))["message"]
        message = refusal(ann, manifest(address.replace("http:", "https:"), f"ref: {COMMIT}"))["message"]
        assert "one that this installation does not call" in message
    found = refusal(ann, manifest("https://me:hunter2@git.example.com/x"))
    assert "a user name or password" in found["message"]


def test_code_and_a_repository_are_one_too_many(ann: Person, repository: Repository, url: str) -> None:
    repository.commit({"train.py": "1"})
    answer = ann.http.post("/api/v1/jobs", data={"manifest": manifest(url)}, files={"code": zipped(train__py="pass")})
    assert (answer.status_code, code_of(answer)) == (400, "invalid_manifest")
    assert "repo: code came with the manifest, too: leave out either of the two" in answer.text
    with_code = ann.http.post("/api/v1/jobs", data={"manifest": HELLO}, files={"code": zipped(train__py="pass")}).json()
    job = ann.submit(manifest(url))
    body = {"code_sha256": with_code["code_sha256"]}
    again = ann.http.post(f"/api/v1/jobs/{job['id']}/rerun", json=body).json()
    assert again["code_sha256"] == with_code["code_sha256"], "other code takes the place of the repository"
    assert pinned(ann, again) is None


def test_a_viewer_has_nothing_asked(api: Api, ann: Person, repository: Repository, tmp_path: Path) -> None:
    repository.commit({"train.py": "1"})
    viewer = api.person("viewer", ann.project_id)
    with git_server(tmp_path / "git") as server:
        answer = viewer.http.post("/api/v1/manifests:validate", content=manifest(f"{server.url}/project/.git"))
        assert answer.status_code == 200, answer.text
        assert "only editors may have its repository asked" in " ".join(answer.json()["notes"])
        assert not server.asked
