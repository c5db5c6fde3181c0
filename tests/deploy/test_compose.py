"""docker-compose.yml, as far as it can be checked against the programs that it names (tests/containers has it on a real
engine).

There need not be a container engine: the commands and settings that it gives are tried on the programs themselves.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel

from weft_core.settings import S3Settings, Settings
from weft_embedded import ports
from weft_embedded.servers.seaweedfs import find_program

ROOT = Path(__file__).parents[2]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILES = [ROOT / "deploy/docker/api.Dockerfile", ROOT / "deploy/docker/worker.Dockerfile"]
OURS = ["migrate", "setup", "api", "worker"]
PASSED_ON = {name for ours in OURS for name, value in SERVICES[ours].get("environment", {}).items() if value is None}
"""Settings that a service has only if .env has them."""
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


def filled_in(text: str) -> str:
    """``text`` as compose reads it, with a value for each variable."""
    values = {"WEFT_SECRET_KEYS": "A" * 43 + "="}
    replaced = _VARIABLE.sub(lambda m: m[3] if m[2] == "-" else values.get(m[1], m[1].lower()), text)
    return replaced.replace("$$", "$")


def test_secrets_have_no_default_and_the_example_names_every_variable() -> None:
    example = (ROOT / ".env.example").read_text()
    for name, kind, value in _VARIABLE.findall(COMPOSE_TEXT):
        assert re.search(rf"^(# )?{name}=", example, re.MULTILINE), name
        if name in {"WEFT_PORT", "WEFT_S3_PORT"}:
            assert (kind, value.isdecimal()) == ("-", True)
        else:
            assert kind == "?", f"{name} must be required"
    assert not re.search(r"^WEFT_\w+=.", example, re.MULTILINE), "the example must not come with secrets"
    named = set(re.findall(r"^(?:# )?(WEFT_\w+)=", example, re.MULTILINE))
    read = {name for name, _, _ in _VARIABLE.findall(COMPOSE_TEXT)} | PASSED_ON
    assert named == read, "the example names what nobody reads"
    # The loop in its head makes all of them but what only the user knows, and the keys, which have a form.
    loop = re.search(r"for name in (.*?); do", example, re.DOTALL)
    assert loop
    made = set(re.findall(r"WEFT_\w+", loop[1]))
    assert made == named - {"WEFT_HOST", "WEFT_SECRET_KEYS", "WEFT_PORT", "WEFT_S3_PORT"} - PASSED_ON


def test_settings_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passed_on = dict(re.findall(r"^# (WEFT_\w+)='?(.*?)'?$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    given = {
        name: passed_on[name] if value is None else filled_in(value)
        for service in OURS
        for name, value in SERVICES[service]["environment"].items()
    }
    known = {f"WEFT_{name.upper()}" for name in Settings.model_fields}
    for name in given:
        top, _, nested = name.partition("__")
        assert top in known, name
        if nested:
            section = Settings.model_fields[top.removeprefix("WEFT_").lower()].annotation
            assert isinstance(section, type)
            assert issubclass(section, BaseModel)
            assert nested.lower() in section.model_fields, name
    monkeypatch.chdir(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.database_url.get_secret_value() == "postgresql://weft:weft_postgres_password@postgres/weft"
    assert settings.s3.public_endpoint == "http://weft_host:8333"
    assert settings.api.public_url == "http://weft_host:8080"
    assert settings.oidc["work"].client_id == "weft"
    assert settings.identity.issuer == "https://weft.example.org"
    # The data store that users' jobs get, made by the set-up with credentials that no other service of ours is given.
    assert settings.datastore.access_key == "weft_datastore_access_key"
    assert [name for name in OURS if "WEFT_DATASTORE__SECRET_KEY" in SERVICES[name]["environment"]] == ["setup", "api"]


def test_commands_and_health_checks_exist() -> None:
    commands = [SERVICES[name]["command"] for name in OURS if "command" in SERVICES[name]]
    commands += [
        yaml.safe_load(line[4:])
        for file in DOCKERFILES
        for line in file.read_text().splitlines()
        if line.startswith("CMD ")
    ]
    commands += [
        shlex.split(line)
        for line in re.findall(r"python -m [\w. ]+", COMPOSE_TEXT + (ROOT / ".env.example").read_text())
    ]
    for command in commands:
        assert command[:2] == ["python", "-m"]
        assert importlib.util.find_spec(command[2]) is not None, command
    for name, service in SERVICES.items():
        one_shot = service.get("restart") == "no"
        assert ("healthcheck" in service) is not one_shot, name
    # As scripts: some engines split an argument of a health check at its spaces.
    for name in ("api", "worker"):
        assert SERVICES[name]["healthcheck"]["test"] == ["CMD", f"{name}-healthy"]


def test_services_are_locked_down() -> None:
    for name in OURS:
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        # The image's user and no rights at all, but for the worker, which starts learners as other users.
        assert SERVICES[name].get("user") == ("0:0" if name == "worker" else None)
        rights = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE"]
        assert SERVICES[name].get("cap_add", []) == (rights if name == "worker" else [])
    # Where the installers of environments keep their caches, also as root, whose own home can't be written.
    assert " HOME=/var/lib/weft " in DOCKERFILES[1].read_text()
    for file in DOCKERFILES:
        assert re.findall(r"^USER (.*)$", file.read_text(), re.MULTILINE) == ["10001:10001"]
    # Only what users need is open to the network; what is kept is in named volumes.
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"api", "s3"}
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])


def test_what_is_waited_for_can_happen() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            done = SERVICES[other].get("restart") == "no"
            expected = "service_completed_successfully" if done else "service_healthy"
            assert how["condition"] == expected, (name, other)


@pytest.fixture
def store() -> Iterator[str]:
    """The compose file's S3 server, run here: its own flags and environment, but a folder and free ports of ours."""
    service, taken = SERVICES["s3"], set[int]()
    flags = [flag for flag in service["command"] if not flag.startswith(("-dir", "-ip", "-s3.port=", "-volume.port="))]
    for name in (
        "s3.port",
        "s3.port.grpc",
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
    ):
        port = ports.pick()
        taken.add(port)
        flags.append(f"-{name}={port}")
        if name == "s3.port":
            endpoint = f"http://127.0.0.1:{port}"
    environment = {name: filled_in(value) for name, value in service["environment"].items()}
    with tempfile.TemporaryDirectory(prefix="weft-compose-", dir="/tmp") as folder:
        shell, option, script, name = service["entrypoint"]
        script = filled_in(script).replace("/tmp/", f"{folder}/")
        (Path(folder) / "bin").mkdir()
        (Path(folder) / "bin" / "weed").symlink_to(find_program())
        path = f"{folder}/bin:{os.environ['PATH']}"
        command = [shell, option, script, name, f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, env={**os.environ, **environment, "PATH": path}, stderr=log, cwd=folder)
        yield endpoint
        process.kill()
        process.wait()
    for socket in Path("/tmp").glob("seaweedfs-*.sock"):
        if any(f"-{port}.sock" in socket.name for port in taken):
            socket.unlink()


def test_the_store_runs_as_composed(store: str) -> None:
    def client(access_key: str, secret_key: str) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=store,
            region_name="us-east-1",
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
        )

    admin, stranger = client("weft_s3_access_key", "weft_s3_secret_key"), client("stranger", "stranger")
    users = client("weft_datastore_access_key", "weft_datastore_secret_key")
    deadline = time.monotonic() + 60
    while True:
        try:
            admin.create_bucket(Bucket=S3Settings().bucket)
            admin.put_object(Bucket=S3Settings().bucket, Key="a", Body=b"b")
            break
        except (BotoCoreError, ClientError):
            assert time.monotonic() < deadline, "the store does not answer"
            time.sleep(0.2)
    assert admin.get_object(Bucket=S3Settings().bucket, Key="a")["Body"].read() == b"b"
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        stranger.list_objects_v2(Bucket=S3Settings().bucket)
    # Users' jobs may do what they like, but not with the installation's own bucket.
    users.create_bucket(Bucket="results")
    users.put_object(Bucket="results", Key="c", Body=b"d")
    assert users.get_object(Bucket="results", Key="c")["Body"].read() == b"d"
    refused: tuple[Callable[[], object], ...] = (
        lambda: users.list_objects_v2(Bucket=S3Settings().bucket),
        lambda: users.get_object(Bucket=S3Settings().bucket, Key="a"),
        lambda: users.put_object(Bucket=S3Settings().bucket, Key="a", Body=b"theirs"),
        lambda: users.delete_object(Bucket=S3Settings().bucket, Key="a"),
        lambda: users.delete_bucket(Bucket=S3Settings().bucket),
    )
    for call in refused:
        with pytest.raises(ClientError, match="AccessDenied"):
            call()
    assert admin.get_object(Bucket=S3Settings().bucket, Key="a")["Body"].read() == b"b"
