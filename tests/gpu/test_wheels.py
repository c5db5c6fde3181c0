"""`tests/gpu/wheels`: checks that need no network."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).with_name("wheels")
MIB = 1 << 20


def gathered(folder: Path, *sizes: int) -> list[Path]:
    wheels = [folder / f"w{number}.whl" for number in range(len(sizes))]
    for wheel, size in zip(wheels, sizes, strict=True):
        with wheel.open("wb") as file:
            file.truncate(size)
    return wheels


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return SourceFileLoader("weft_gpu_wheels", str(SCRIPT)).load_module()


def test_parts_are_as_few_and_no_larger_than_asked(script: ModuleType, tmp_path: Path) -> None:
    wheels = gathered(tmp_path, 6 * MIB, 5 * MIB, 4 * MIB, 3 * MIB, 2 * MIB)
    script.divide(tmp_path, wheels, 10 * MIB)
    found = {part.name: sorted(wheel.name for wheel in part.iterdir()) for part in tmp_path.iterdir()}
    assert found == {"1": ["w0.whl", "w2.whl"], "2": ["w1.whl", "w3.whl", "w4.whl"]}


def test_a_wheel_that_fits_no_part(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"w0.whl alone has 3.0 MiB, a part may have 2"):
        script.divide(tmp_path, gathered(tmp_path, 3 * MIB), 2 * MIB)


def test_an_install_from_a_folder_without_pip(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "install", tmp_path / "venv", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "there is no wheel of pip" in done.stderr
    assert not (tmp_path / "venv").exists()
