"""`weft models` and `client.models` against the API itself, with Postgres and S3 behind it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs
from tests.api.conftest import HELLO, Api, Person, api, api_settings
from tests.cli.conftest import Weft
from typer import Context

from weft import errors
from weft.client import Client
from weft.commands import models as commands
from weft.exits import ExitCode
from weft.resources.registry import split_reference
from weft.transport.http import Transport
from weft_core.objects import results_prefix
from weft_core.store.models import ModelVersion

__all__ = ["api", "api_settings"]  # fixtures


@pytest.fixture
def ann(api: Api) -> Person:
    return api.person()


@pytest.fixture
def client(api: Api, ann: Person) -> Iterator[Client]:
    with Client(api.url, ann.token) as made:
        yield made


@pytest.fixture
def real(api: Api, ann: Person, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weft]:
    """The command, signed in at the API, whose log would go to the same stdout."""
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", ann.token)
    with capture_logs():
        yield weft


@pytest.fixture
def job(api: Api, ann: Person) -> str:
    """A completed job that is no model yet."""
    return completed(api, ann)


def completed(api: Api, ann: Person, stores: str = "") -> str:
    job_id: str = ann.submit(HELLO + stores)["id"]
    api.context.objects.put(results_prefix(ann.project_id, job_id) + "model.pt", b"weights" * 200)
    for state in ("PENDING", "PROCESSING", "COMPLETED"):
        api.set_state(job_id, state)
    return job_id


def test_from_a_job_to_a_stage_and_back(api: Api, ann: Person, real: Weft, job: str, tmp_path: Path) -> None:
    assert "no models yet" in real("models", "list").err
    assert real("models", "register", job, "digits").out == "digits@1\n"
    assert real("models", "register", "@last", "digits").out == "digits@1\n", "the same results stay the same version"
    with api.context.database.transaction() as session:
        [version] = session.scalars(select(ModelVersion).where(ModelVersion.project_id == ann.project_id))
        pin = {"name": "pillow", "version": "11.0.0", "source": "", "replaces": "12.0.0", "hashes": []}
        version.lineage = version.lineage | {"packages": {"lock": [pin], "sha256": "a" * 64}}
    assert "packages      pillow 11.0.0 (the image has 12.0.0)" in real("models", "show", "digits@1").out
    child = completed(api, ann, "data_stores: [{model: digits@1, training_results: {model: digits}}]")
    assert "digits@production is version 2" in real("models", "promote", "digits@2", "production").err
    assert "the notes of digits@2 are changed" in real("models", "note", "digits@production", "**best** yet").err
    assert "notes         **best** yet" in real("models", "show", "digits@2").out
    rows = real("models", "list").out.splitlines()
    assert rows[1].split()[:6] == ["digits", "2", "2", "production", "→", "2"]
    shown = real("models", "show", "digits").out
    assert [line.split()[0] for line in shown.splitlines() if "job-" in line] == ["2", "1"]
    assert child in shown
    panel = real("models", "show", "digits@production").out
    assert "digits@2" in panel
    assert {"parent", "image", "run"} <= {line.split()[0] for line in panel.splitlines() if line}
    raw = json.loads(real("models", "show", "digits@2", "--json").out)
    assert (raw["job"], raw["parent"], raw["lineage"]["job"]["id"]) == (child, "digits@1", child)
    assert [
        version["version"] for version in json.loads(real("models", "show", "digits", "--json").out)["version_list"]
    ] == [
        2,
        1,
    ]
    told = real("show", child).out
    assert ["pretrained", "digits@1"] in [line.split() for line in told.splitlines()]
    assert ["model", "digits@2"] in [line.split() for line in told.splitlines()]

    target = tmp_path / "model.zip"
    assert real("models", "download", "digits@1", "-o", str(target)).out == f"{target}\n"
    with zipfile.ZipFile(target) as archive:
        assert archive.read("model.pt") == b"weights" * 200
    folder = tmp_path / "model"
    assert real("models", "download", "digits", "--unpack", "-o", str(folder)).code == 0
    assert (folder / "model.pt").read_bytes() == b"weights" * 200
    again = real("models", "download", "digits", "--unpack", "-o", str(folder))
    assert (again.code, "not an empty folder" in again.err) == (1, True)

    refused = real("models", "delete", "digits@2", "--yes")
    assert refused.code != 0
    assert "digits@2 is digits@production" in refused.err
    assert real("models", "demote", "digits@production").code == 0
    assert real("models", "delete", "digits@2").code == ExitCode.USAGE, "nobody to ask"
    assert real("models", "delete", "digits@2", "--yes").code == 0
    assert real("models", "show", "digits@2").code == ExitCode.NOT_FOUND
    assert real("models", "delete", "digits", "--yes").code == 0
    assert json.loads(real("models", "list", "--json").out) == []


def test_refusals_are_for_people(real: Weft, job: str) -> None:
    assert "no model 'nothing' in this project" in real("models", "show", "nothing").err
    assert "expected NAME or NAME@VERSION" in real("models", "show", "a@").err
    real("models", "register", job, "digits")
    assert "its latest is 1" in real("models", "download", "digits@7").err
    done = real("models", "promote", "digits@1", "Production")
    assert done.code != 0
    assert "a stage is a lower-case letter" in done.err


def test_the_library_pages_through_everything(
    api: Api, client: Client, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        client.models.register(job, f"m{number}")
    with monkeypatch.context() as small:
        small.setattr(client.models, "_transport", _SmallPages(client.models._transport))
        assert [model.name for model in client.models.list()] == ["m0", "m1", "m2"]
    version = client.models.version("m1@latest")
    assert (version.reference, version.files["bytes"], version.children) == ("m1@1", 1400, ())
    assert [file.path for file in client.models.files("m1")] == ["model.pt"]
    with pytest.raises(errors.NotFound):
        client.models.version("m1@9")
    client.models.promote("m1@1", "production")
    with pytest.raises(errors.Conflict, match="m1@production"):
        client.models.delete("m1")


class _SmallPages:
    """Asks for one row a page, as if there were very many."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def json(self, method: str, path: str, **options: Any) -> object:
        params = options.get("params")
        if isinstance(params, dict):
            options["params"] = {**params, "limit": 1}
        return self._transport.json(method, path, **options)


def test_completion(client: Client, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client.models.register(job, "digits")
    client.models.promote("digits@1", "production")
    monkeypatch.setattr(commands, "client_of", lambda _: client)
    context = cast(Context, None)
    assert [suggestion for suggestion, _ in commands.complete_model(context, "di")] == ["digits"]
    assert [suggestion for suggestion, _ in commands.complete_model(context, "digits@")] == [
        "digits@latest", "digits@production", "digits@1",
    ]  # fmt: skip
    assert [suggestion for suggestion, _ in commands.complete_model(context, "digits@p")] == ["digits@production"]
    assert commands.complete_model(context, "nothing@") == []


@pytest.mark.parametrize(
    ("reference", "parts"),
    [("mnist", ("mnist", "latest")), ("mnist@3", ("mnist", "3")), ("a.b@production", ("a.b", "production"))],
)
def test_references(reference: str, parts: tuple[str, str]) -> None:
    assert split_reference(reference) == parts


@pytest.mark.parametrize("reference", ["", "@3", "a@", "a@b@c"])
def test_what_is_no_reference(reference: str) -> None:
    with pytest.raises(errors.WeftError, match="expected NAME"):
        split_reference(reference)
