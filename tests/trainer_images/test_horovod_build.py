"""Horovod's build script: it compiles once, even if it is interrupted, and gives advice when it can't.

The real compilation takes minutes and happens where a Horovod environment is built for the first time; here, a stand-in
for the environment's python plays pip.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.trainer.agents import ended

BUILD = Path(__file__).parents[2] / "trainer_images" / "horovod" / "build"
FAKE_PYTHON = Path(__file__).with_name("fake_python.py")
# The parts of Horovod's source that the build changes, as they are in the archive.
SOURCE = {
    "CMakeLists.txt": "set(CMAKE_CXX_STANDARD 14)\nset(CMAKE_CXX_STANDARD_REQUIRED ON)\n",
    "horovod/torch/CMakeLists.txt": "    set(CMAKE_CXX_STANDARD 14)\n",
    "horovod/tensorflow/CMakeLists.txt": "".join(
        f'list(APPEND TF_SOURCES "${{PROJECT_SOURCE_DIR}}/horovod/tensorflow/{name}.cc")\n'
        for name in ("mpi_ops", "xla_mpi_ops")
    ),
    "cmake/Modules/FindPytorch.cmake": 'execute_process(COMMAND ${PY_EXE} -c "import torch; '
    "from torch.utils.cpp_extension import CUDA_HOME; print(True if ((torch.version.cuda is not None) and "
    '(CUDA_HOME is not None)) else False)"\n',
    "setup.py": """config = 'Debug' if self.debug else 'RelWithDebInfo'\n""",
}
WHEEL = "horovod-0.28.1-*/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"


class Machine:
    """A machine with an environment, compilers that do nothing, and a wheel cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.cache = folder / "wheels of a user+1"  # a name that Horovod's own build would not survive
        self.temporary = folder / "tmp"
        for made in (self.tools, self.temporary):
            made.mkdir()
        for tool in ("g++", "cmake", "make"):
            self._script(self.tools / tool, "#!/bin/sh\n")
        self._script(folder / "python", f"#!{sys.executable}\n{FAKE_PYTHON.read_text()}")
        self.plan(torch="2.13.0")
        self.compiles_at_once(True)

    def plan(self, source: Mapping[str, str] = SOURCE, **plan: str | bool) -> None:
        (self.folder / "fake.json").write_text(json.dumps({"source": source, **plan}))

    def compiles_at_once(self, yes: bool) -> None:
        """Or only if a variable asks for it."""
        gate = self.folder / "go-on"
        gate.touch() if yes else gate.unlink(missing_ok=True)

    def start(self) -> subprocess.Popen[str]:
        environment = {"PATH": str(self.tools), "TMPDIR": str(self.temporary), "HOROVOD_CYCLE_TIME": "1"}
        return subprocess.Popen(
            [sys.executable, BUILD, self.folder / "python", self.cache],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build(self) -> tuple[int, str, str]:
        process = self.start()
        out, error = process.communicate(timeout=300)
        return process.returncode, out, error

    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def kept(self) -> list[Path]:
        return list(self.cache.glob(WHEEL))

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_compiles_once_and_installs_from_the_cache_from_then_on(machine: Machine) -> None:
    code, out, _ = machine.build()
    assert code == 0
    assert "compiling Horovod 0.28.1 for PyTorch 2.13.0: 50 %" in out.splitlines()
    code, out, _ = machine.build()
    assert code == 0
    assert out == "installing Horovod 0.28.1 for PyTorch 2.13.0 from the cache\n"
    assert machine.calls() == ["download", "wheel", "install wheel", "install wheel"]
    assert list(machine.temporary.iterdir()) == []


def test_what_is_compiled_is_the_edited_source(machine: Machine) -> None:
    machine.build()
    compiled = {name: (machine.folder / "compiled" / name).read_text() for name in SOURCE}
    assert "CMAKE_CXX_STANDARD 14" not in "".join(compiled.values())
    assert "xla" not in "".join(compiled.values())
    assert "mpi_ops.cc" in compiled["horovod/tensorflow/CMakeLists.txt"]
    assert compiled["setup.py"].endswith("'Release'\n")


@pytest.mark.parametrize("asked", [True, False])
def test_cuda_only_when_asked_for(machine: Machine, asked: bool) -> None:
    """The edited line of FindPytorch.cmake, run as CMake runs it on a machine with a CUDA PyTorch and a toolkit."""
    machine.build()
    line = (machine.folder / "compiled" / "cmake/Modules/FindPytorch.cmake").read_text()
    code = line.partition('-c "')[2].rpartition('"')[0]
    stand_in = machine.folder / "torch" / "utils"
    stand_in.mkdir(parents=True)
    (stand_in.parent / "__init__.py").write_text("class version:\n    cuda = '13.0'\n")
    (stand_in / "cpp_extension.py").write_text("CUDA_HOME = '/usr/local/cuda'\n")
    environment = {"PYTHONPATH": str(machine.folder), **({"HOROVOD_GPU_OPERATIONS": "NCCL"} if asked else {})}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{asked}\n"


def test_a_source_that_is_not_the_expected_one(machine: Machine) -> None:
    machine.plan(source={**SOURCE, "setup.py": "another\n"}, torch="2.13.0")
    code, _, error = machine.build()
    assert code == 1
    assert "setup.py of Horovod 0.28.1 is not what it should be" in error
    assert machine.kept() == []


def test_another_framework_or_version_gets_a_wheel_of_its_own(machine: Machine) -> None:
    machine.build()
    machine.plan(torch="2.14.0")
    machine.build()
    machine.plan(tensorflow="2.21.0")
    _, out, _ = machine.build()
    assert "for TensorFlow 2.21.0" in out
    assert machine.calls().count("wheel") == 3
    assert len(machine.kept()) == 3


def test_two_at_the_same_time_compile_once(machine: Machine) -> None:
    machine.compiles_at_once(False)
    first, second = machine.start(), None
    try:
        assert first.stdout is not None
        assert "once on this machine" in first.stdout.readline()
        second = machine.start()
        assert second.stdout is not None
        assert second.stdout.readline() == "waiting for another build of Horovod 0.28.1 for PyTorch 2.13.0\n"
    finally:
        machine.compiles_at_once(True)
        codes = [process.wait(300) for process in (first, second) if process]
    assert codes == [0, 0]
    assert sorted(machine.calls()) == ["download", "install wheel", "install wheel", "wheel"]


def test_a_missing_tool_is_named_with_how_to_get_it(machine: Machine) -> None:
    (machine.tools / "cmake").unlink()
    (machine.tools / "g++").unlink()
    code, _, error = machine.build()
    assert code == 1
    assert "which it lacks: g++ cmake." in error
    assert "sudo apt-get install g++ cmake`" in error
    assert machine.calls() == []


def test_no_tool_is_needed_when_the_wheel_is_there(machine: Machine) -> None:
    machine.build()
    shutil.rmtree(machine.tools)
    assert machine.build()[0] == 0


def test_a_failed_compilation_shows_its_end_and_leaves_nothing(machine: Machine) -> None:
    machine.plan(torch="2.13.0", compile_fails=True)
    code, _, error = machine.build()
    assert code == 1
    assert error.startswith("error: Horovod 0.28.1 could not be compiled for PyTorch 2.13.0")
    assert "no such thing" in error
    assert "Traceback" not in error
    assert list(machine.temporary.iterdir()) == []
    machine.plan(torch="2.13.0")
    assert machine.build()[0] == 0


def test_a_wheel_that_can_t_be_loaded_is_not_kept(machine: Machine) -> None:
    machine.plan(torch="2.13.0", load_fails="undefined symbol: gone")
    code, _, error = machine.build()
    assert code == 1
    assert "undefined symbol: gone" in error
    assert machine.kept() == []


def test_an_environment_without_its_lock(machine: Machine) -> None:
    machine.plan()
    code, _, error = machine.build()
    assert code == 1
    assert "holds neither PyTorch nor TensorFlow" in error


def test_ended_in_the_middle_it_takes_the_compilers_along(machine: Machine) -> None:
    machine.compiles_at_once(False)
    process = machine.start()
    assert process.stdout is not None
    while "50 %" not in process.stdout.readline():
        pass
    pidfile = machine.folder / "compiling"
    while not (pidfile.exists() and pidfile.read_text()):
        time.sleep(0.01)
    process.terminate()
    assert process.wait(300) == 128 + signal.SIGTERM
    assert ended(int(pidfile.read_text()))
    assert list(machine.temporary.iterdir()) == []
    machine.compiles_at_once(True)
    assert machine.build()[0] == 0


def test_an_interpreter_that_does_not_run(machine: Machine) -> None:
    (machine.folder / "python").unlink()
    code, _, error = machine.build()
    assert code == 1
    assert "can't run the environment's Python" in error
    assert os.listdir(machine.temporary) == []
