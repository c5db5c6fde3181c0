"""An image becomes a virtual environment: once, for all that wait for it, whichever process is killed meanwhile."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from tests.wheels import make_wheel
from tests.workers.engines.bench import Bench, until

from weft_core import processes
from weft_core.catalogue import Catalogue, Image
from weft_core.engine import LaunchRefused, LearnerState, Preparation
from weft_workers.environments import EnvironmentBuilder, EnvironmentFailed
from weft_workers.supervision import waits
from weft_workers.supervision.installer import Installing
from weft_workers.supervision.waits import Recipe, Wait

BUILDING = "building environment tiny:1.0"
LOCK = """# as trainer_images/lock writes it
six==1.16.0 \\
    --hash=sha256:1e61c37477a1626458e36f7b1d82aa5c9b094fa4802892072e49de9c60c4c926 \\
    --hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254
"""


class Images:
    """A catalogue with one image, `tiny:1.0`, and a builder for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.lock = folder / "requirements.lock"
        self.lock.write_text(LOCK)
        self.script: Path | None = None
        self.variants: tuple[Path, ...] = ()

    def empty(self) -> None:
        """Let there be nothing to install."""
        self.lock.write_text("")

    def hook(self, script: str) -> None:
        """Give the image a build program."""
        self.script = self.folder / "build"
        self.script.write_text(f"#!/bin/sh\n{script}\n")
        self.script.chmod(0o755)

    def builder(self, root: Path, agent: Path | None = None) -> EnvironmentBuilder:
        image = Image(
            *("tiny", "1.0", self.folder, self.lock, ("tiny",), ("none",), "none", (), self.script),
            variants=self.variants,
        )
        return EnvironmentBuilder(root, catalogue=Catalogue([image], {}), agent=agent)


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "image")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def recipe_of(builder: EnvironmentBuilder) -> Recipe:
    recipe = builder.locate("tiny:1.0").recipe
    assert recipe
    return recipe


def builders_of(recipe: Recipe) -> list[int]:
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
    """In a shell: wait for a file, but with a limit, as nobody would end the build."""
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
    assert said[0].startswith("building environment tiny:1.0: ")
    assert said[-1] == f"building environment tiny:1.0: compiling for {environment.python} into {root / 'wheels'}"
    recipe = recipe_of(images.builder(root))
    assert "+ six==1.16.0" in recipe.beside(".log").read_text(), "uv says so"
    assert waits.progress(recipe) == ""
    before = environment.python.lstat().st_ctime_ns
    assert images.builder(root).build("tiny:1.0") == environment
    assert environment.python.lstat().st_ctime_ns == before, "it is not built again"
    assert images.builder(root).ready() == {"tiny:1.0"}
    assert images.builder(root / "elsewhere").ready() == frozenset()


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (["Using Python 3.11.7 environment at: /x"], ""),
        (["Resolved 31 packages in 350ms"], "bringing 31 packages"),
        (["Downloading torch (182.9MiB)"], "downloading torch (182.9MiB)"),
        (["Downloading a (2.9MiB)", "Downloading b (7.0MiB)"], "downloading b (7.0MiB), a (2.9MiB)"),
        (
            [f"Downloading {name}" for name in ("a (2.9MiB)", "b (1.1GiB)", "c (900KiB)", "d (7.0MiB)", "e (1B)")],
            "downloading b (1.1GiB), d (7.0MiB), a (2.9MiB) and 2 more",
        ),
        (["Downloading a (2.9MiB)", "Downloading b (7.0MiB)", "Downloaded a"], "downloading b (7.0MiB)"),
        (["Downloading torch (182.9MiB)", "Downloaded torch"], ""),
        (["Building weft @ file:///x"], "building weft"),
        (["Prepared 31 packages in 14.26s"], "unpacking 31 packages"),
        (["Installed 31 packages in 506ms"], ""),
        (["Collecting torch==2.13.0 (from -r lock (line 3))"], "installing torch (package 1)"),
        (["Collecting a==1", "Collecting b==2"], "installing b (package 2)"),
        (["Installing collected packages: a, b"], "unpacking 2 packages"),
    ],
)
def test_the_installers_words_become_progress(lines: list[str], progress: str) -> None:
    installing = Installing()
    assert [installing.hear(line) for line in lines][-1] == progress


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
    builder = images.builder(root)
    with ThreadPoolExecutor(4) as pool:
        builds = [pool.submit(builder.build, "tiny:1.0") for _ in range(4)]
        assert len({build.result().folder for build in builds}) == 1
    assert (tmp_path / "builds").read_text() == "x\n"


def test_a_killed_build_is_made_again_from_scratch(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate = tmp_path / "gate"
    # The first time it hangs, with a child that would go on writing into the environment.
    images.hook(f'if [ ! -e {gate} ]; then touch "$(dirname $1)/half"; setsid sh -c "touch {gate}; sleep 600"; fi')
    recipe = recipe_of(images.builder(root))
    wait = Wait(recipe, "a-job")
    wait.check()
    until(gate.exists)
    [builder] = builders_of(recipe)
    os.kill(builder, signal.SIGKILL)
    until(lambda: not waits.is_building(recipe.folder))
    assert not recipe.is_complete()
    assert processes.with_environment(f"WEFT_BUILDS={recipe.folder}"), "its child lives on"
    until(lambda: wait.check().ready)
    assert not Path(recipe.folder, "bin", "half").exists()
    assert not processes.with_environment(f"WEFT_BUILDS={recipe.folder}")


def test_a_build_that_is_killed_again_and_again_is_told(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    # As the kernel does when memory is short: the build itself, the parent of its program.
    images.hook(f"echo x >> {tmp_path / 'tries'}; kill -9 $PPID; sleep 600")
    wait = Wait(recipe_of(images.builder(root)), "a-job")
    failed = until(lambda: wait.check().failed)
    assert failed.startswith("the build was killed 3 times; ")
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    wait.end()
    images.hook("true")
    assert images.builder(root).build("tiny:1.0").python.exists(), "the next wish is another try"


def test_a_build_outlives_the_worker_that_asked_for_it(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate = tmp_path / "gate"
    images.hook(f"while [ ! -e {gate} ]; do sleep 0.02; done")
    recipe = recipe_of(images.builder(root))
    worker = os.fork()
    if worker == 0:
        os.setsid()
        Wait(recipe, "a-job").check()
        os.killpg(0, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert waits.is_building(recipe.folder)
    gate.touch()
    until(recipe.is_complete)


def test_a_build_that_nobody_waits_for_ends_with_all_its_processes(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate, cleaned = tmp_path / "gate", tmp_path / "cleaned"
    images.hook(f"trap 'touch {cleaned}; exit 1' TERM; setsid sleep 600 & touch {gate}; while :; do sleep 0.05; done")
    recipe = recipe_of(images.builder(root))
    first, other = Wait(recipe, "one-job"), Wait(recipe, "another-job")
    first.check()
    other.check()
    until(gate.exists)
    first.end()
    builds = builders_of(recipe)
    assert builds, "somebody still waits"
    other.end()
    until(lambda: not waits.is_building(recipe.folder))
    assert cleaned.exists(), "its program could clean up"
    assert not processes.with_environment(f"WEFT_BUILDS={recipe.folder}")
    assert not Path(recipe.folder).exists(), "the space is given back"
    gate.unlink()
    images.hook("true")
    assert images.builder(root).build("tiny:1.0").python.exists()


def test_a_wait_ends_with_the_process_that_waits(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    gate = tmp_path / "gate"
    images.hook(f"touch {gate}; sleep 600")
    recipe = recipe_of(images.builder(root))
    child = os.fork()
    if child == 0:
        os.setsid()
        Wait(recipe, "a-terminal", processes.identity(os.getpid())).check()
        signal.pause()
    until(gate.exists)
    assert waits.is_building(recipe.folder)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: not waits.is_building(recipe.folder))
    assert not recipe.is_complete()


def test_a_build_goes_behind_learners(images: Images, root: Path, tmp_path: Path) -> None:
    images.empty()
    images.hook(f"nice > {tmp_path / 'nice'}")
    images.builder(root).build("tiny:1.0")
    assert int((tmp_path / "nice").read_text()) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)


@pytest.mark.parametrize(
    ("installer", "command", "words"),
    [
        ("uv", "`uv pip install …`", "there is no version of six==999.0"),
        ("pip", "`python -m pip …`", "No matching distribution found for six==999.0"),
    ],
)
def test_a_lock_that_can_not_be_installed_is_told_with_the_installers_last_words(
    images: Images, root: Path, monkeypatch: pytest.MonkeyPatch, installer: str, command: str, words: str
) -> None:
    monkeypatch.setenv("WEFT_INSTALLER", installer)
    images.lock.write_text(LOCK.replace("1.16.0", "999.0"))
    with pytest.raises(EnvironmentFailed) as caught:
        images.builder(root).build("tiny:1.0")
    assert f"{command} ended with code 1:" in str(caught.value)
    assert words in str(caught.value)
    assert not Path(recipe_of(images.builder(root)).folder).exists(), "the space is given back"


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_file_with_another_hash_is_refused(
    images: Images, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    monkeypatch.setenv("WEFT_INSTALLER", installer)
    make_wheel(tmp_path / "wheels", "weft-forged", "1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    images.lock.write_text(f"weft-forged==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EnvironmentFailed) as caught:
        images.builder(root).build("tiny:1.0")
    assert "weft-forged" in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert not recipe_of(images.builder(root)).is_complete()
    images.lock.write_text("weft-forged==1.0\n")
    with pytest.raises(EnvironmentFailed, match="--require-hashes"):
        images.builder(root).build("tiny:1.0")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_machine_with_wheels_and_constraints_of_its_own(
    images: Images, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    """The machine's wheel has the lock's version but another hash; the index has the right file."""
    monkeypatch.setenv("WEFT_INSTALLER", installer)
    make_wheel(tmp_path / "wheels", "six", "1.16.0", text="OURS = True\n")
    (tmp_path / "constraints.txt").write_text("six<2\n")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    environment = images.builder(root).build("tiny:1.0")
    subprocess.run([environment.python, "-c", "import six; assert not hasattr(six, 'OURS')"], check=True)
    if installer == "pip":
        assert "Successfully installed six-1.16.0" in recipe_of(images.builder(root)).beside(".log").read_text()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_of_the_variants_the_first_is_taken_that_the_index_serves(
    images: Images, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    monkeypatch.setenv("WEFT_INSTALLER", installer)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    images.empty()
    locks = []
    # The second is found by its exact version, although a build of it would be newer.
    for name, pin, version in (("cpu", "==1.0+cpu", "1.0+cpu"), ("cuda", "===1.0", "1.0")):
        wheel = make_wheel(tmp_path / "kept", "weft-built", version)
        locks.append(tmp_path / f"{name}.lock")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        locks[-1].write_text(f"weft-built{pin} --hash=sha256:{digest}\n")
    images.variants = tuple(locks)
    make_wheel(tmp_path / "wheels", "weft-built", "1.0+other")
    (tmp_path / "kept" / "weft_built-1.0-py3-none-any.whl").rename(tmp_path / "wheels/weft_built-1.0-py3-none-any.whl")
    show = "import importlib.metadata; print(importlib.metadata.version('weft-built'))"
    for place, version in (("first", "1.0"), ("second", "1.0+cpu")):
        python = images.builder(root / place).build("tiny:1.0").python
        said = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == version
        for wheel in (tmp_path / "kept").iterdir():
            wheel.rename(tmp_path / "wheels" / wheel.name)


def test_files_are_shared_with_the_installers_cache(images: Images, root: Path) -> None:
    environment = images.builder(root).build("tiny:1.0")
    [six] = environment.folder.glob("lib/python*/site-packages/six.py")
    other = images.builder(root.parent / "others").build("tiny:1.0")
    [same] = other.folder.glob("lib/python*/site-packages/six.py")
    cache = subprocess.run(
        [Path(sys.executable).with_name("uv"), "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if os.stat(cache).st_dev == root.stat().st_dev:
        assert os.path.samefile(six, same)


def test_programs_that_may_not_write_bytecode_find_it(
    images: Images, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = images.builder(root).build("tiny:1.0")
    assert [*environment.folder.glob("lib/python*/site-packages/__pycache__/six.*.pyc")]


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
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    images.builder(root).build("tiny:1.0")
    assert not (tmp_path / "elsewhere").exists()


def test_all_homes_of_a_user_share_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_ENVIRONMENTS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    homes = [tmp_path / "one", tmp_path / "another"]
    assert {EnvironmentBuilder.root_of(home) for home in homes} == {tmp_path / "cache" / "weft" / "environments"}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert EnvironmentBuilder.root_of(homes[0]) == tmp_path / "user" / ".cache" / "weft" / "environments"
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert EnvironmentBuilder.root_of(homes[0]) == homes[0] / "environments", "a service's user may have no home"
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
    assert [learner.state for learner in seen.learners.values()] == [LearnerState.STARTING] * 2
    assert not seen.gone
    waiting.touch()
    assert [learner.exit_code for learner in bench.ended(spec).values()] == [0, 0]
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
    until(lambda: "gate" in waits.progress(recipe))
    [builder] = builders_of(recipe)
    os.kill(builder, signal.SIGKILL)
    waiting.touch()
    assert bench.ended(spec)[0].exit_code == 0


def test_a_build_ends_when_the_last_run_that_waits_is_stopped(bench: Bench, waiting: Path) -> None:
    specs = [bench.spec("", job=job, image="tiny:1.0") for job in ("one", "another")]
    recipe = recipe_of(bench.images)
    for spec in specs:
        bench.engine.launch(spec)
    until(lambda: "gate" in waits.progress(recipe))
    bench.engine.stop(specs[0].run_name, timedelta(seconds=600))
    until(lambda: bench.observe(specs[0]) is None)
    assert waits.is_wanted(recipe.folder)
    bench.engine.stop(specs[1].run_name, timedelta(seconds=600))
    until(lambda: not waits.is_building(recipe.folder))
    assert not recipe.is_complete()


def test_the_engine_builds_what_waiting_jobs_want_and_nothing_else(bench: Bench, waiting: Path) -> None:
    recipe = recipe_of(bench.images)
    jobs = {"job-a": "tiny:1.0", "job-b": "tiny:1.0", "job-c": sys.prefix, "job-d": "nothing:9"}

    def at_the_gate() -> Mapping[str, Preparation] | None:
        found = bench.engine.prepare(jobs)
        return found if found and "gate" in found["job-a"].progress else None

    held = until(at_the_gate)
    assert {name: preparation.progress for name, preparation in held.items()} == {
        "job-a": f"{BUILDING}: waiting for the gate",
        "job-b": f"{BUILDING}: waiting for the gate",
    }
    assert bench.engine.observe() == {}, "nothing holds room meanwhile"
    other = bench.new_engine(name="second")
    assert list(other.prepare({"job-e": "tiny:1.0"})) == ["job-e"]
    assert bench.engine.prepare({}) == {}
    assert waits.is_wanted(recipe.folder), "another engine's job waits for it"
    assert other.prepare({}) == {}
    until(lambda: not waits.is_building(recipe.folder))
    assert not recipe.is_complete()
    bench.engine.prepare(jobs)
    waiting.touch()
    until(lambda: bench.engine.prepare(jobs) == {})
    assert recipe.is_complete()


def test_all_jobs_that_waited_for_a_build_hear_of_its_failure_and_the_next_is_another_try(
    bench: Bench, waiting: Path
) -> None:
    waiting.write_text("bad")
    jobs = {"job-a": "tiny:1.0", "job-b": "tiny:1.0"}

    def all_failed() -> Mapping[str, Preparation] | None:
        found = bench.engine.prepare(jobs)
        return found if found and all(preparation.failed for preparation in found.values()) else None

    failed = until(all_failed)
    assert failed
    assert failed["job-b"].failed.startswith("environment tiny:1.0 could not be built: `build python wheels …` ended")
    assert list(bench.engine.prepare({"job-b": "tiny:1.0"}).values()) == [failed["job-b"]], "until it is heard"
    bench.engine.prepare({})
    waiting.write_text("good")
    until(lambda: not bench.engine.prepare({"job-a": "tiny:1.0"}))


def test_the_orderly_end_of_a_home_ends_its_builds_and_the_next_start_begins_them_again(
    bench: Bench, waiting: Path
) -> None:
    recipe = recipe_of(bench.images)
    until(lambda: "gate" in str(bench.engine.prepare({"job-a": "tiny:1.0"})))
    environment = {**os.environ, "WEFT_ENVIRONMENTS_DIR": str(bench.images.root)}
    command = [sys.executable, "-m", "weft_workers.engines.local", "interrupt", "--home", str(bench.home)]
    subprocess.run(command, check=True, env=environment)
    assert not waits.is_building(recipe.folder)
    assert not recipe.is_complete()
    assert not Path(recipe.folder).exists()
    again = bench.new_engine()
    until(lambda: "gate" in str(again.prepare({"job-a": "tiny:1.0"})))


def test_interrupting_a_run_that_waits(bench: Bench, waiting: Path) -> None:
    spec = bench.spec("", image="tiny:1.0", learners=2)
    bench.engine.launch(spec)
    until(lambda: "gate" in waits.progress(recipe_of(bench.images)))
    command = [sys.executable, "-m", "weft_workers.engines.local", "interrupt", "--home", str(bench.home)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=300).stdout == "1 runs interrupted\n"
    assert [learner.interrupted for learner in bench.ended(spec).values()] == [True, True]
    waiting.touch()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "weft_workers.environments", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    wrong = call("build", "horovod:0.1")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("horovod:0.1: no image has version '0.1' of horovod")
    # An environment that is there already: nothing to build.
    root = tmp_path / "environments"
    monkeypatch.setenv("WEFT_ENVIRONMENTS_DIR", str(root))
    folder = EnvironmentBuilder(root).locate("python:3.11").folder
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / ".complete").touch()
    assert call("python", "python").stdout == f"{folder}/bin/python\n"
    assert call("build", "python", "python:3.11").stdout == f"python:3.11: {folder}\n" * 2
