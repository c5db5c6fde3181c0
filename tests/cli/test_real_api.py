"""The client and the command against the API itself, with Postgres, Redis and S3 behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from tests.api.conftest import PASSWORD, Api, Person, api, api_settings
from tests.cli.conftest import Weft

from weft import errors
from weft.client import Client
from weft.models import Gap, LogLine, StateChange
from weft.profile import Server
from weft.transport.http import Transport

__all__ = ["api", "api_settings"]  # fixtures

MANIFEST = """name: digits
labels: {team: vision}
learners: 2
framework:
  name: pytorch
  command: python train.py
"""


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def client(api: Api, ann: Person) -> Iterator[Client]:
    with Client(api.url, ann.token) as made:
        yield made


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "manifest.yml").write_text(MANIFEST)
    (folder / "train.py").write_text("print('hi')\n")
    return folder


def test_a_job_from_train_to_delete(client: Client, code: Path, tmp_path: Path) -> None:
    manifest = code / "manifest.yml"
    job = client.train(manifest, code, overrides={"learners": "3"}, name="other")
    assert (job.name, job.learners, job.state, job.labels) == ("other", 3, "QUEUED", {"team": "vision"})
    assert client.train(manifest, code).code_sha256 == job.code_sha256
    assert [listed.name for listed in client.jobs.list()] == ["digits", "other"]
    assert [listed.name for listed in client.jobs.list(label="team=vision", q="oth", state="QUEUED")] == ["other"]
    definition = job.download_definition(tmp_path / "code.zip")
    assert job.code_sha256 is not None
    assert definition.stat().st_size > 0
    more = job.rerun({"framework.packages[0]": "einops"})
    assert client.job(more.id).manifest["framework"]["packages"] == ["einops"], "what `rerun --with` sends"
    again = job.rerun({"learners": "1"})
    assert (again.rerun_of, again.learners, again.code_sha256) == (job.id, 1, job.code_sha256)
    assert next(event.kind for event in job.events()) == "submitted"
    assert again.halt().desired == "HALTED"
    job.delete()
    with pytest.raises(errors.Conflict):
        client.job(again.id).resume()


def test_a_rerun_with_other_code_keeps_the_manifest(client: Client, code: Path, tmp_path: Path) -> None:
    job = client.train(code / "manifest.yml", code)
    (code / "train.py").write_text("print('better')\n")
    again = job.rerun(code=code)
    assert (again.rerun_of, again.name, again.learners, again.labels) == (job.id, "digits", 2, {"team": "vision"})
    with zipfile.ZipFile(again.download_definition(tmp_path / "code.zip")) as archive:
        assert archive.read("train.py") == b"print('better')\n"
        assert archive.namelist() == ["train.py"], "the manifest may hold credentials"
    assert client.jobs.rerun(job.id, code=tmp_path / "code.zip").code_sha256 != job.code_sha256, "a zip, as it is"
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.BundleError, match="has no code"):
        job.rerun(code=tmp_path / "empty")
    with pytest.raises(errors.ApiError, match="no code bundle with the sha256 0000"):
        job.rerun(code_sha256="0" * 64)
    with pytest.raises(errors.WeftError, match="code or code_sha256, not both"):
        job.rerun(code=code, code_sha256=again.code_sha256)


def test_every_manifest_problem_has_its_line(client: Client, code: Path) -> None:
    (code / "manifest.yml").write_text(MANIFEST.replace("learners: 2", "learners: two") + "colour: red\n")
    with pytest.raises(errors.InvalidManifest) as caught:
        client.train(code / "manifest.yml", code)
    assert {(problem.path, problem.line) for problem in caught.value.problems} == {("learners", 3), ("colour", 7)}
    (code / "manifest.yml").write_text(MANIFEST)
    assert client.validate(code / "manifest.yml", {"learners": "5"}).manifest["learners"] == 5


def test_a_zip_that_is_none_is_refused(client: Client, code: Path, tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    path.write_bytes(b"PK and nothing more")
    with pytest.raises(errors.InvalidBundle):
        client.train(code / "manifest.yml", path)


@pytest.mark.slow
def test_logs_are_followed_through_retries_and_broken_connections(
    api: Api,
    ann: Person,
    client: Client,
    code: Path,
) -> None:
    job = client.train(code / "manifest.yml", code)
    first = api.attempt(job.id)
    api.set_state(job.id, "PENDING")
    api.set_state(job.id, "PROCESSING", "runs")
    broken = _Breaking(Server(api.url, ann.token))
    got: list[LogLine | StateChange | Gap] = []

    def follow() -> None:
        got.extend(Client(transport=broken).jobs.follow_logs(job.id))

    thread = threading.Thread(target=follow)
    thread.start()
    for agent in first.agents:
        agent.start()
    for number in range(40):
        first.agents[number % 2].log(number // 2, f"a {number}", "\u2028 odd \x85 line")
    api.end_attempt(first)
    api.set_state(job.id, "QUEUED", "learner 2 was lost: attempt 2 follows")
    second = api.attempt(job.id)
    for agent in second.agents:
        agent.start()
    second.agents[0].log(0, "b")
    api.end_attempt(second)
    api.set_state(job.id, "PENDING")
    api.set_state(job.id, "COMPLETED")
    thread.join(300)
    assert not thread.is_alive()
    lines = [item for item in got if isinstance(item, LogLine)]
    assert [line.n for line in lines] == list(range(81))
    assert [line.text for line in lines if line.text.startswith("a")] == [f"a {number}" for number in range(40)]
    assert lines[-1].attempt == 2
    assert broken.breaks > 2
    assert got[-1] == StateChange("COMPLETED", "", final=True)
    assert [line.text for line in client.jobs.logs(job.id, tail=2)] == ["\u2028 odd \x85 line", "b"]
    assert len(list(client.jobs.logs(job.id, learner=2))) == 40
    assert [line.text for line in client.jobs.logs(job.id, attempt=2)] == ["b"]
    assert client.job(job.id).wait().attempts[1].n == 2


class _Breaking(Transport):
    """A transport whose streams break off after a few hundred bytes."""

    breaks = 0

    @contextmanager
    def stream(self, *arguments: Any, **options: Any) -> Iterator[httpx.Response]:
        with super().stream(*arguments, **options) as response:
            whole = response.iter_bytes

            def some() -> Iterator[bytes]:
                left = 700
                for piece in whole():
                    yield piece[:left]
                    left -= len(piece)
                    if left <= 0:
                        self.breaks += 1
                        raise errors.Unavailable("the connection broke")

            with patch.object(response, "iter_bytes", some):
                yield response


def test_data_goes_to_a_store_and_comes_back(
    api: Api,
    client: Client,
    tmp_path: Path,
) -> None:
    s3 = api.settings.s3
    client.datastores.add(
        "default", endpoint=s3.endpoint, user_name=s3.access_key, password=s3.secret_key.get_secret_value()
    )
    (store,) = client.datastores.list()
    assert "password" not in store.raw
    with pytest.raises(errors.ApiError):
        client.datastores.add("bad", endpoint=s3.endpoint, user_name="nobody", password="wrong")
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    (source / "empty").write_bytes(b"")
    (source / "sub" / "a b+ü.bin").write_bytes(bytes(range(256)) * 1000)
    sent = client.data.put(source, "cli-data/set")
    assert [item.key for item in sent] == ["set/empty", "set/sub/a b+ü.bin"]
    assert [(listed.key, listed.size) for listed in client.data.objects("cli-data")] == [
        ("set/empty", 0),
        (sent[1].key, 256_000),
    ]
    assert "cli-data" in client.data.containers()
    client.data.get("cli-data/set", tmp_path / "out")
    for item in sent:
        name = item.key.removeprefix("set/")
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    with pytest.raises(errors.ApiError):
        client.data.get("no-such-bucket/x", tmp_path)


def test_a_large_file_goes_up_in_parts(
    api: Api,
    client: Client,
    tmp_path: Path,
) -> None:
    s3 = api.settings.s3
    client.datastores.add(
        "default", endpoint=s3.endpoint, user_name=s3.access_key, password=s3.secret_key.get_secret_value()
    )
    source = tmp_path / "large.bin"
    with source.open("wb") as file:
        for number in range(70):
            file.write(bytes([number]) * (1 << 20))
    counted: list[int] = []
    client.data.put(source, "cli-large/large.bin", progress=counted.append)
    assert sum(counted) == 70 << 20
    client.data.get("cli-large/large.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()


def test_secrets_tokens_and_signing_in(api: Api, ann: Person, client: Client) -> None:
    client.secrets.set("wandb", "v")
    assert [secret.name for secret in client.secrets.list()] == ["wandb"]
    client.secrets.remove("wandb")
    made = client.tokens.create("ci", 3)
    assert made.token is not None
    assert made.token not in repr(made)
    with Client(api.url, made.token) as other:
        assert other.me() == client.me()
        client.tokens.revoke(made.id)
        with pytest.raises(errors.AuthenticationError):
            other.me()
    with Client(transport=Transport(Server(api.url, user=ann.name, password=PASSWORD))) as by_password:
        assert by_password.me().user == ann.name
    with pytest.raises(errors.AuthenticationError), Client(transport=Transport(Server(api.url))) as unsigned:
        unsigned.login(ann.name, "wrong")


def test_the_installation(client: Client) -> None:
    (engine,) = client.engines()
    assert (engine.name, engine.default) == ("local", True)
    assert (engine.health, engine.condition) == ("unseen", "no worker has looked at it yet")
    assert client.engine("local").raw.items() >= engine.raw.items()
    with pytest.raises(errors.NotFound, match="no engine 'nowhere'; there are: local"):
        client.engine("nowhere")
    assert client.server_version()
    images = {image["reference"]: image for image in client.catalogue()}
    assert images["pytorch:2.13.0"]["frameworks"] == ["pytorch"]
    assert images["pytorch:2.13.0"]["aliases"] == ["pytorch:latest", "pytorch:v0.2"]
    assert (images["python:3.11"]["devices"], images["python:3.11"]["engines"]) == (["cpu"], {"local": "unknown"})


def test_another_projects_job_is_not_found(api: Api, client: Client, code: Path) -> None:
    job = client.train(code / "manifest.yml", code)
    with Client(api.url, api.person().token) as stranger, pytest.raises(errors.NotFound):
        stranger.job(job.id)


@pytest.fixture
def here(api: Api, ann: Person, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Weft:
    """The command in this process. The API's log is on the same output."""
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", ann.token)
    return Weft(capsys)


def test_schedules(here: Weft, ann: Person, client: Client, code: Path) -> None:
    weft, manifest = here, str(code / "manifest.yml")
    assert weft("schedule", "list").err.startswith("no schedules yet")
    wrong = weft("schedule", "create", manifest, "--cron", "0 25 * * *")
    assert (wrong.code, "the hour, '25', is out of its range" in wrong.err) == (3, True)
    done = weft("schedule", "create", manifest, str(code), "--cron", "0 3 1 1 *", "--timezone", "Europe/Berlin")
    schedule = client.schedules.get(client.schedules.find("@last").id)
    assert schedule.id in done.out
    assert (schedule.cron, schedule.timezone, schedule.overlap) == ("0 3 1 1 *", "Europe/Berlin", "skip")
    assert schedule.manifest["name"] == "digits"
    done = weft("schedule", "run", "digits")
    (start,) = client.schedules.starts(schedule.id)
    assert (start.trigger, start.state, start.job_state, start.user) == ("request", "STARTED", "QUEUED", ann.name)
    job = start.job or ""
    assert job in done.out
    assert client.job(job).code_sha256, "the code came with it"
    assert client.job(job).labels["schedule"] == schedule.id
    shown = weft("schedule", "show", "@last").out
    assert "starts at 0 3 1 1 * (Europe/Berlin); overlap: skip" in shown
    assert job in shown
    assert job in weft("schedule", "list").out
    assert '"starts": [' in weft("schedule", "show", schedule.id[:7], "--json").out
    assert f"{schedule.id} is PAUSED" in weft("schedule", "pause", "digits").err
    assert client.schedules.get(schedule.id).next_at is None
    assert f"{schedule.id} is ACTIVE" in weft("schedule", "resume", "digits").err
    client.schedule({"name": "digits", "framework": {"name": "python", "command": "true"}, "on": "digits@production"})
    assert "means several schedules" in weft("schedule", "pause", "digits").err
    assert "is deleted" in weft("schedule", "delete", schedule.id).err
    assert [left.on for left in client.schedules.list()] == ["digits@production"]
    assert weft("schedule", "show", schedule.id).code == 4


@pytest.mark.slow
def test_the_command(api: Api, ann: Person, code: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_URL": api.url, "WEFT_TOKEN": ann.token}

    def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from weft.main import run; run()", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = weft("train", str(code / "manifest.yml"))
    assert done.returncode == 0
    job_id = done.stdout.strip()
    assert [job["id"] for job in json.loads(weft("list", "--json").stdout)] == [job_id]
    assert job_id in weft("list").stdout
    assert "vision" in weft("show", "@last").stdout
    assert "submitted" in weft("events", job_id[:8]).stdout
    assert weft("download", job_id, "-o", str(tmp_path / "m.zip")).returncode == 1
    assert weft("halt", "digits").returncode == 0
    api.set_state(job_id, "HALTED", "halted by the user")
    assert weft("logs", job_id, "--follow").returncode == 11
    assert weft("train", str(code / "manifest.yml"), "--set", "learners=none").returncode == 3
    assert weft("engines").stdout.startswith("ENGINE")
    assert httpx.get(f"{api.url}/healthz").json()["version"] in weft("version").stdout
