"""pip's configuration as settings of uv: a mirror, wheels or a CA of one's own hold for both."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "trainer_images" / "pip-settings"


def exported(
    configuration: str, folder: Path, python: str | Path = sys.executable, **environment: str
) -> dict[str, str]:
    """The variables that a shell has after evaluating what the program prints."""
    file = folder / "pip.conf"
    file.write_text(configuration)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "SSL_"))}
    script = f'settings=$({python} {PROGRAM}) || exit 1; eval "$settings"; env'
    done = subprocess.run(
        ["sh", "-c", script],
        env={**clean, "HOME": str(folder), "PIP_CONFIG_FILE": str(file), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = [line.partition("=") for line in done.stdout.splitlines()]
    return {name: value for name, _, value in pairs if name.startswith(("UV_", "SSL_"))}


def test_nothing_is_configured(tmp_path: Path) -> None:
    assert not {"UV_DEFAULT_INDEX", "SSL_CERT_FILE"} & exported("", tmp_path, PIP_CONFIG_FILE=os.devnull).keys()


def test_a_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    configuration = f"""
[global]
index-url = https://mirror.example/simple
extra-index-url =
    https://one.example/simple
    https://user:it's@two.example/simple
find-links = {tmp_path / "wheels"} {tmp_path / "missing"} https://wheels.example/
cert = /etc/ssl/own.pem
trusted-host = mirror.example
timeout = 7
disable-pip-version-check = true
[install]
timeout = 90
"""
    told = exported(configuration, tmp_path)
    assert told["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert told["UV_INDEX"] == "https://one.example/simple https://user:it's@two.example/simple"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["UV_FIND_LINKS"] == f"{tmp_path / 'wheels'},https://wheels.example/"
    assert told["SSL_CERT_FILE"] == "/etc/ssl/own.pem"
    assert told["UV_INSECURE_HOST"] == "mirror.example"
    assert told["UV_HTTP_TIMEOUT"] == "90"


def test_the_environment_goes_first_and_uvs_own_stays(tmp_path: Path) -> None:
    configuration = "[global]\nindex-url = https://file.example/simple\n"
    told = exported(configuration, tmp_path, PIP_INDEX_URL="https://environment.example/simple")
    assert told["UV_DEFAULT_INDEX"] == "https://environment.example/simple"
    told = exported(configuration, tmp_path, UV_DEFAULT_INDEX="https://uv.example/simple")
    assert told["UV_DEFAULT_INDEX"] == "https://uv.example/simple"


def test_an_environment_without_pip_has_the_configuration_of_its_python(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    base = subprocess.run([Path(sys.base_prefix) / "bin" / "python3", "-m", "pip", "--version"], capture_output=True)
    if base.returncode != 0:
        pytest.skip("NOT RUN: this machine's own Python has no pip")
    told = exported("[global]\ncert = /etc/ssl/own.pem\n", tmp_path, tmp_path / "bare" / "bin" / "python")
    assert told["SSL_CERT_FILE"] == "/etc/ssl/own.pem"
