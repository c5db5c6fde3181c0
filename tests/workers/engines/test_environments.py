"""An image becomes a virtual environment: once, for all who wait for it, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.workers.engines.bench import Bench, until

from weft_core.catalogue import Catalogue, Image
from weft_core.engine import LaunchRefused, LearnerState
from weft_workers.environments import EnvironmentBuilder, EnvironmentFailed
from weft_workers.supervision import build as builds
from weft_workers.supervision import processes

BUILDING = "building environment tiny:1.0"
LOCK = "# as `pip freeze` writes it\nsix==1.16.0\n"


# For tests that need no installation of pip's: an interpreter whose environments borrow pip, which saves seconds.
QUICK = f"""#!/bin/sh
exec {sys.executable} -m venv --without-pip --system-site-packages "$3"
"""


class Images:
    """A catalogue with one image, `tiny:1.0`, and a builder for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.lock = folder / "requirements.lock"
        self.lock.write_text(LOCK)
        self.script: Path | None = None
        self.python = sys.executable

    def empty(self) -> None:
        """Let there be nothing to install."""
        self.lock.write_text("")
        self.borrow()

    def borrow(self) -> None:
        python = self.folder / "python"
        python.write_text(QUICK)
        python.chmod(0o755)
        self.python = str(python)

    def hook(self, script: str) -> None:
        """Give the image a build program."""
        self.script = self.folder / "build"
        self.script.write_text(f"#!/bin/sh\n{script}\n")
        self.script.chmod(0o755)

    def builder(self, root: Path, agent: Path | None = None) -> EnvironmentBuilder:
        image = Image("tiny", "1.0", self.folder, self.lock, ("tiny",), ("none",), "none", (), self.script)
        return EnvironmentBuilder(root, catalogue=Catalogue([image], {}), agent=agent, python=self.python)


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "image")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def recipe_of(builder: EnvironmentBuilder) -> builds.Recipe:
    recipe = builder.locate("tiny:1.0").recipe
    assert recipe
    return recipe


def builders_of(recipe: builds.Recipe) -> list[int]:
    """The processes of the builds of this environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"weft_workers.supervision.build" in command and recipe.folder.encode() in command:
                found.append(int(name))
    return found


def _until_there(path: Path) -> str:
    """In a shell: wait for a file, but not for ever, as nobody ends a build."""
    return f"for n in $(seq 3000); do [ -e {path} ] && break; sleep 0.02; done"


def test_an_environment_is_built_from_the_lock_with_progress(images: Images, root: Path, tmp_path: Path) -> None:
    heard, said = tmp_path / "heard", list[str]()
    images.hook(f'echo "compiling for $1 into $2"; {_until_there(heard)}; touch "$2/made.whl"')

    def hear(progress: str) -> None:
        said.append(progress)
        if "compiling" in progress:
            heard.touch()

    environment = images.builder(root).build("tiny:1.0", hear)
    version = subprocess.run(
        [environment.python, "-c", "import six; print(six.__version__)"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == "1.16.0"
    assert (root / "wheels" / "made.whl").exists()
    assert "building environment tiny:1.0: making the virtual environment" in said
    assert said[-1] == f"building environment tiny:1.0: compiling for {environment.python} into {root / 'wheels'}"
    recipe = recipe_of(images.builder(root))
    assert "Successfully installed six-1.16.0" in recipe.beside(".log").read_text()
    assert builds.progress(recipe) == ""
    before = environment.python.lstat().st_ctime_ns
    assert images.builder(root).build("tiny:1.0") == environment
    assert environment.python.lstat().st_ctime_ns == before, "it is not built again"
    assert images.builder(root).ready() == {"tiny:1.0"}
    assert images.builder(root / "elsewhere").ready() == frozenset()


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (["Collecting torch==2.13.0 (from -r lock (line 3))"], "installing torch (1 of 2)"),
        (["Collecting a==1", "Collecting b==2"], "installing b (2 of 2)"),
        (["Collecting a==1", "Collecting b==2", "Collecting c"], "installing c (2 of 2)"),
        (["Installing collected packages: a, b"], "unpacking 2 packages"),
    ],
)
def test_pips_words_become_progress(images: Images, root: Path, lines: list[str], progress: str) -> None:
    recipe = recipe_of(images.builder(root))
    root.mkdir()
    build = builds.Build(recipe)
    build._packages = 2
    for line in lines:
        build._pip_said(line)
    assert builds.progress(recipe) == f"building environment tiny:1.0: {progress}"


def test_its_folder_is_named_by_all_that_it_depends_on(images: Images, root: Path) -> None:
    folders = {recipe_of(images.builder(root)).folder}
    images.lock.write_text(LOCK + "\n# another\n")
    folders.add(recipe_of(images.builder(root)).folder)
    images.hook("true")
    folders.add(recipe_of(images.builder(root)).folder)
    images.hook("false")
    folders.add(recipe_of(images.builder(root)).folder)
    assert len(folders) == 4
    assert {Path(folder).parent for folder in folders} == {root}


def test_several_who_wait_share_one_build(images: Images, root: Path, tmp_path: Path) -> None:
    images.hook(f"echo x >> {tmp_path / 'builds'}; sleep 0.2")
    images.empty()
    done: list[Path] = []
    builder = images.builder(root)
    threads = [threading.Thread(target=lambda: done.append(builder.build("tiny:1.0").folder)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 4
    assert (tmp_path / "builds").read_text() == "x\n"


def test_a_killed_build_is_made_again_from_scratch(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate = tmp_path / "gate"
    # The first time it hangs, with a child that would go on writing into the environment.
    images.hook(f'if [ ! -e {gate} ]; then touch "$(dirname $1)/half"; setsid sh -c "touch {gate}; sleep 600"; fi')
    recipe = recipe_of(images.builder(root))
    builds.ensure(recipe)
    until(gate.exists)
    [builder] = builders_of(recipe)
    assert builds.is_building(recipe)
    os.kill(builder, signal.SIGKILL)
    until(lambda: not builds.is_building(recipe))
    assert not recipe.is_complete()
    assert processes.with_environment(f"WEFT_BUILDS={recipe.folder}"), "its child lives on"
    environment = images.builder(root).build("tiny:1.0")
    assert environment.python.exists()
    assert not (environment.folder / "bin" / "half").exists()
    assert not processes.with_environment(f"WEFT_BUILDS={recipe.folder}")


def test_a_build_outlives_the_worker_that_asked_for_it(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate = tmp_path / "gate"
    images.hook(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    recipe = recipe_of(images.builder(root))
    worker = os.fork()
    if worker == 0:
        os.setsid()
        builds.ensure(recipe)
        os.killpg(0, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert builds.is_building(recipe)
    gate.touch()
    until(recipe.is_complete)


def test_a_lock_that_can_not_be_installed_is_told_with_pips_last_words(images: Images, root: Path) -> None:
    images.borrow()
    images.lock.write_text("six==999.0\n")
    with pytest.raises(EnvironmentFailed) as caught:
        images.builder(root).build("tiny:1.0")
    assert "`python -m pip …` ended with code 1:" in str(caught.value)
    assert "No matching distribution found for six==999.0" in str(caught.value)
    assert not Path(recipe_of(images.builder(root)).folder).exists(), "the space is given back"


def test_a_failing_build_program_is_told_with_its_last_words_and_tried_again(images: Images, root: Path) -> None:
    images.empty()
    images.hook(f"[ -e {root}/fixed ] && exit 0; echo there is no C++ compiler >&2; exit 4")
    with pytest.raises(EnvironmentFailed, match=r"`build .*` ended with code 4:\nthere is no C\+\+ compiler"):
        images.builder(root).build("tiny:1.0")
    (root / "fixed").touch()
    assert images.builder(root).build("tiny:1.0").python.exists()


def test_a_full_disk_is_told_as_such(images: Images, root: Path) -> None:
    images.empty()
    images.hook("echo 'cp: error writing: No space left on device'; exit 1")
    with pytest.raises(EnvironmentFailed, match=rf"^the disk is full: {root} has \d+ MiB left$"):
        images.builder(root).build("tiny:1.0")


def test_the_starters_environment_leads_pip_nowhere_else(
    images: Images, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.borrow()
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    images.builder(root).build("tiny:1.0")
    assert not (tmp_path / "elsewhere").exists()


def test_where_environments_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EnvironmentBuilder.root_of(tmp_path) == tmp_path / "environments"
    monkeypatch.setenv("WEFT_ENVIRONMENTS_DIR", str(tmp_path / "shared"))
    assert EnvironmentBuilder.root_of(tmp_path) == tmp_path / "shared"


def test_an_image_that_is_not_in_the_catalogue_is_refused(images: Images, root: Path) -> None:
    with pytest.raises(LaunchRefused, match=r"image 'tiny:2\.0': the local engine knows tiny:1.0, and takes"):
        images.builder(root).locate("tiny:2.0")


def test_the_shipped_images_can_be_located(root: Path) -> None:
    for image in Catalogue.load().images:
        assert EnvironmentBuilder(root).locate(image.reference).recipe


# --- with the engine: a run waits for its environment by itself ---


@pytest.fixture
def waiting(bench: Bench, images: Images, root: Path) -> Iterator[Path]:
    """The engine runs `tiny:1.0`, whose build ends when the returned file is there."""
    gate = root.parent / "gate"
    images.empty()
    images.hook(
        f"echo waiting for the gate; while [ ! -e {gate} ]; do sleep 0.02; done; grep -q bad {gate} && exit 1; true"
    )
    bench.images = images.builder(root, bench.agent)
    bench.engine = bench.new_engine()
    yield gate
    gate.touch()


def test_a_run_shows_the_build_that_it_waits_for_and_then_starts(bench: Bench, waiting: Path) -> None:
    spec = bench.spec("import sys\nopen(f'{OUT}/prefix', 'w').write(sys.prefix)", image="tiny:1.0", learners=2)
    bench.engine.launch(spec)
    seen = bench.wait(spec, lambda seen: seen.progress == f"{BUILDING}: waiting for the gate")
    assert [one.state for one in seen.learners.values()] == [LearnerState.STARTING] * 2
    assert not seen.gone
    waiting.touch()
    assert [one.exit_code for one in bench.ended(spec).values()] == [0, 0]
    assert bench.wait(spec, lambda seen: seen.gone).progress == ""
    assert (bench.out / "prefix").read_text() == str(bench.images.locate("tiny:1.0").folder)


def test_a_run_whose_environment_can_not_be_built_fails_and_the_next_tries_again(bench: Bench, waiting: Path) -> None:
    waiting.write_text("bad")
    spec = bench.spec("", image="tiny:1.0")
    bench.engine.launch(spec)
    seen = bench.wait(spec, lambda seen: seen.failed)
    assert seen.failed.startswith("environment tiny:1.0 could not be built: `build python wheels …` ended with code 1:")
    bench.wait(spec, lambda seen: seen.gone)
    bench.stop(spec)
    waiting.write_text("good")
    again = bench.spec("", job="again", image="tiny:1.0")
    bench.engine.launch(again)
    assert bench.ended(again)[0].exit_code == 0


def test_a_run_survives_the_death_of_the_build_that_it_waits_for(bench: Bench, waiting: Path) -> None:
    spec = bench.spec("", image="tiny:1.0")
    bench.engine.launch(spec)
    recipe = recipe_of(bench.images)
    until(lambda: "gate" in builds.progress(recipe))
    [builder] = builders_of(recipe)
    os.kill(builder, signal.SIGKILL)
    waiting.touch()
    assert bench.ended(spec)[0].exit_code == 0


def test_stopping_a_run_that_waits_leaves_the_build_to_others(bench: Bench, waiting: Path) -> None:
    spec = bench.spec("", image="tiny:1.0")
    bench.engine.launch(spec)
    recipe = recipe_of(bench.images)
    until(lambda: "gate" in builds.progress(recipe))
    bench.engine.stop(spec.run_name, timedelta(seconds=600))
    until(lambda: bench.look(spec) is None)
    assert builds.is_building(recipe)
    waiting.touch()
    until(recipe.is_complete)


def test_interrupting_a_run_that_waits(bench: Bench, waiting: Path) -> None:
    spec = bench.spec("", image="tiny:1.0", learners=2)
    bench.engine.launch(spec)
    until(lambda: "gate" in builds.progress(recipe_of(bench.images)))
    command = [sys.executable, "-m", "weft_workers.engines.local", "interrupt", "--home", str(bench.home)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "1 runs interrupted\n"
    assert [one.interrupted for one in bench.ended(spec).values()] == [True, True]
    waiting.touch()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "weft_workers.environments", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    wrong = call("build", "horovod:0.1")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("horovod:0.1: no image has version '0.1' of horovod")
    # An environment that is there already: nothing to build.
    folder = EnvironmentBuilder(tmp_path / "environments").locate("python:3.11").folder
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / ".complete").touch()
    assert call("python", "python").stdout == f"{folder}/bin/python\n"
    assert call("build", "python", "python:3.11").stdout == f"python:3.11: {folder}\n" * 2
