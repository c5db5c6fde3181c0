"""The refusals of ``weft up``, and the parts of it that other servers can replace. No service is started here."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.embedded.helpers import Weft, wait_for
from tests.servers import Servers

from weft_core.settings import S3Settings
from weft_embedded import home as homes
from weft_embedded.__main__ import main
from weft_embedded.config import create_config, read_settings
from weft_embedded.home import Home
from weft_embedded.stack import Choice, Stack


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="weft-up-", dir="/tmp") as name:
        yield Path(name) / "home"


@pytest.fixture
def outside(servers: Servers, database_url: str, redis_url: str, s3: S3Settings, folder: Path) -> Weft:
    """A home whose three servers are somebody else's."""
    return Weft(
        folder,
        WEFT_DATABASE_URL=database_url,
        WEFT_REDIS_URL=redis_url,
        WEFT_S3__ENDPOINT=s3.endpoint,
        WEFT_S3__ACCESS_KEY=s3.access_key,
        WEFT_S3__SECRET_KEY=s3.secret_key.get_secret_value(),
        WEFT_S3__BUCKET=s3.bucket,
    )


def test_newer_home(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Home(folder).open()
    (folder / "version").write_text(f"{homes.LAYOUT + 1}\n")
    assert main(["up", "--home", str(folder)]) == 1
    assert "was made by a newer Weft (layout 2, this one knows up to 1)" in capsys.readouterr().err


def test_older_home(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Home(folder).open()
    (folder / "version").write_text("0\n")
    assert main(["up", "--home", str(folder)]) == 1
    assert "is of an older layout (0, this Weft needs 1)" in capsys.readouterr().err


def test_a_folder_that_is_no_home_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious")
    assert main(["up", "--home", str(folder)]) == 1
    assert "is no home of Weft: it has no file 'version' but holds thesis.tex" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_the_environment_of_a_home_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--home", str(folder)]) == 1
    said = capsys.readouterr()
    assert f"no Weft was started in {folder}: `weft up --home {folder}` starts one there" in said.err
    assert said.out == ""
    assert not folder.exists(), "asking makes none"


def test_full_disk(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))
    assert main(["up", "--home", str(folder)]) == 1
    assert f"the disk of {folder} is full: 5 MiB free, Weft needs 1024 MiB to start" in capsys.readouterr().err


def test_taken_port_names_its_holder(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = Weft(folder).run("up", "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken by pid " in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_setting(folder: Path) -> None:
    weft = Weft(folder, WEFT_DEFAULT_ENGINE="nowhere")
    done = weft.run("up", "--detach")
    assert done.returncode == 1
    assert "default_engine 'nowhere' is none of: local" in done.stderr
    assert "Traceback" not in done.stderr


def test_own_postgres_beside_anothers_redis(folder: Path, redis_url: str, s3: S3Settings) -> None:
    weft = Weft(
        folder,
        WEFT_REDIS_URL=redis_url,
        WEFT_S3__ENDPOINT=s3.endpoint,
        WEFT_S3__ACCESS_KEY=s3.access_key,
        WEFT_S3__SECRET_KEY=s3.secret_key.get_secret_value(),
    )
    weft.up("--no-api", "--no-worker")
    assert set(weft.parts()) == {"postgres"}
    assert weft.run("down").returncode == 0
    assert weft.processes() == {}


def test_a_shell_that_took_over_the_environment_still_starts_our_own_servers(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WEFT_CONFIG", "WEFT_HOME"):  # read_settings changes them
        monkeypatch.setenv(name, "")
    home = Home(folder)
    home.open()
    create_config(home)

    def servers() -> list[str]:
        return [server.name for server in Stack(home, read_settings(home), Choice()).servers()]

    ours = servers()
    assert ours == ["postgres", "redis", "s3"]
    assert main(["env", "--home", str(folder)]) == 0
    for line in capsys.readouterr().out.splitlines():
        name, value = line.removeprefix("export ").split("=", 1)
        if name in ("WEFT_DATABASE_URL", "WEFT_REDIS_URL"):  # S3 chooses its ports when it starts
            monkeypatch.setenv(name, shlex.split(value)[0])
    assert servers() == ours
    monkeypatch.setenv("WEFT_DATABASE_URL", "postgresql://me@elsewhere/weft")
    assert servers() == ["redis", "s3"]


def test_an_s3_that_refuses_the_credentials(outside: Weft) -> None:
    outside.environment["WEFT_S3__SECRET_KEY"] = "wrong"
    done = outside.run("up", "--detach", "--port", "0", "--no-api", "--no-worker")
    assert done.returncode == 1
    assert "the bucket can't be prepared" in done.stderr
    assert "Traceback" not in done.stderr
    assert outside.processes() == {}


def test_servers_of_others_are_used_and_ctrl_c_ends_a_foreground_up(outside: Weft) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "weft_embedded", "up", "--home", str(outside.home), "--no-api", "--no-worker"],
        env=outside.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: outside.status()["ready"] or process.poll() is not None, "it is ready")
    assert outside.parts() == {}
    assert not (outside.home / "postgres").exists()
    assert outside.profile.exists()  # so the database was migrated and filled
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "ready after" in said
    assert outside.processes() == {}
