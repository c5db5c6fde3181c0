"""The job's own virtual environment in front of the image's: real interpreters, real pip."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.trainer.program.test_sealing import namespaces_for, run
from tests.wheels import make_wheel, pip_environment

from weft_trainer.config import RUNTIME
from weft_trainer.program.venv import Venv, make_venv


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image: an environment with a package that has a command, and with pip."""
    folder = tmp_path_factory.mktemp("image") / "environment"
    pip_environment(folder)
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheel(wheels, "weft-alpha", "1.0", program=True)
    make_wheel(wheels, "weft-beta", "1.0", program=True)
    install(folder / "bin" / "python", *wheels.glob("*.whl"))
    return folder


def install(python: Path, *arguments: str | Path) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def venv_of(image: Path, folder: Path, *overlays: Path) -> Venv:
    """As the agent makes it, which runs by the image's interpreter."""
    program = (
        "import sys; from pathlib import Path; from weft_trainer.program.venv import make_venv; "
        "make_venv(Path(sys.argv[1]), [Path(place) for place in sys.argv[2:]])"
    )
    command = [str(image / "bin" / "python"), "-c", program, *map(str, (folder, *overlays))]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(RUNTIME)})
    return Venv(folder)


def shell(venv: Venv, command: str, env: Mapping[str, str] | None = None) -> str:
    variables = {"PATH": f"{venv.bin}:/usr/bin:/bin", **(env or {})}
    done = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_image_is_seen_through_it(image: Path, tmp_path: Path) -> None:
    venv = venv_of(image, tmp_path / "own venv")
    assert shell(venv, "weft-alpha") == "1.0"
    assert shell(venv, "python -c 'import weft_alpha; print(weft_alpha.__file__)'").startswith(str(image))
    assert shell(venv, "python3 -c 'import sys; print(sys.prefix)'") == str(venv.folder)


def test_an_overlay_comes_before_the_image(image: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    make_wheel(tmp_path / "wheels", "weft-alpha", "2.0", program=True)
    make_wheel(tmp_path / "wheels", "weft-new", "0.1", program=True)
    install(image / "bin" / "python", "--target", overlay, *(tmp_path / "wheels").glob("*.whl"))
    venv = venv_of(image, tmp_path / "venv", overlay)
    assert shell(venv, "weft-alpha; weft-beta; weft-new") == "2.0\n1.0\n0.1"
    metadata = "from importlib.metadata import version as v; print(v('weft-alpha'), v('weft-beta'))"
    assert shell(venv, f'python -c "{metadata}"') == "2.0 1.0"


def test_what_pip_installs_stays_in_it(image: Path, tmp_path: Path) -> None:
    newer = make_wheel(tmp_path / "wheels", "weft-alpha", "3.0", program=True)
    before = sorted(image.rglob("*"))
    first, second = venv_of(image, tmp_path / "first"), venv_of(image, tmp_path / "second")
    shell(first, f"pip install --quiet --no-index --disable-pip-version-check {newer}")
    assert shell(first, "weft-alpha") == "3.0"
    assert shell(second, "weft-alpha") == "1.0"
    assert [path for path in sorted(image.rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]
    assert shell(first, "pip uninstall --quiet --yes weft-alpha; weft-beta") == "1.0"
    # An agent that begins anew in the same folder keeps it.
    shell(first, f"pip install --quiet --no-index --disable-pip-version-check {newer}")
    assert (
        shell(venv_of(image, tmp_path / "first"), "python -c 'import weft_alpha as a; print(a.__version__)'") == "3.0"
    )


def test_pip_works_where_the_image_is_read_only(image: Path, tmp_path: Path) -> None:
    """As on every engine: the local one and Ray seal the image for the program, and a pod's root is read-only."""
    if not namespaces_for(None):
        pytest.skip("NOT RUN: this machine gives this user no namespaces")
    newer = make_wheel(tmp_path / "wheels", "weft-alpha", "3.0", program=True)
    venv = venv_of(image, tmp_path / "venv")
    pip = f"pip install --quiet --no-index --disable-pip-version-check {newer}"
    said = run(f"export PATH={venv.bin}:$PATH; {pip} && weft-alpha; touch {image}/of-the-job", image)
    assert said.startswith("3.0\n")
    assert "Read-only file system" in said


def test_processes_that_programs_start_see_the_same(image: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    wheel = make_wheel(tmp_path / "wheels", "weft-new", "0.1")
    install(image / "bin" / "python", "--target", overlay, wheel)
    venv = venv_of(image, tmp_path / "venv", overlay)
    (tmp_path / "spawn.py").write_text(
        "import multiprocessing\n"
        "def child():\n"
        "    import weft_new\n"
        "    print('child', weft_new.__version__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start()\n"
        "    process.join()\n"
        "    raise SystemExit(process.exitcode)\n"
    )
    assert shell(venv, f"python {tmp_path / 'spawn.py'}") == "child 0.1"


def test_pytorchs_process_group_is_ended_before_the_interpreter(image: Path, tmp_path: Path) -> None:
    group = "import sys\nimport types\ncuda = types.SimpleNamespace(is_initialized=lambda: {cuda})\n"
    group += "distributed = types.ModuleType('torch.distributed')\nsys.modules['torch.distributed'] = distributed\n"
    group += "distributed.is_initialized = lambda: {open}\ndistributed.destroy_process_group = lambda: print('ended')\n"
    said = []
    for cuda, opened in ((False, True), (False, False), (True, True)):
        overlay = tmp_path / f"overlay-{cuda}-{opened}"
        wheel = make_wheel(tmp_path / str(overlay.name), "torch", "2.13.0", text=group.format(cuda=cuda, open=opened))
        install(image / "bin" / "python", "--target", overlay, wheel)
        venv = venv_of(image, tmp_path / f"venv-{cuda}-{opened}", overlay)
        said.append(shell(venv, "python -c 'import torch; print(\"works\")'"))
    assert said == ["works\nended", "works", "works"]
    assert shell(venv_of(image, tmp_path / "plain"), "python -c 'print(1)'") == "1"


def test_the_interpreter_need_not_be_in_an_environment(tmp_path: Path) -> None:
    """Images may have their packages beside the system's own Python, which no venv has made."""
    system = Path("/usr/bin/python3")
    if not system.exists():
        system = Path(sys.executable).resolve()
    program = "from pathlib import Path; from weft_trainer.program.venv import make_venv; import sys; "
    program += "make_venv(Path(sys.argv[1]))"
    subprocess.run([system, "-c", program, tmp_path / "venv"], check=True, env={"PYTHONPATH": str(RUNTIME)})
    expected = subprocess.run(
        [system, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    assert expected.stdout.strip() in shell(Venv(tmp_path / "venv"), "python -c 'import sys; print(sys.path)'")


def test_a_second_one_in_the_same_place_is_no_error(tmp_path: Path) -> None:
    made = make_venv(tmp_path / "venv")
    assert make_venv(tmp_path / "venv") == made
    assert made.python.exists()
