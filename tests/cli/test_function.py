"""``@weft.job``: a function of a module or a script becomes a job, and its learner calls it."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.api.conftest import Api, Person, api, api_settings
from tests.cli.double import ID, Double, Seen, as_json, job, problem

import weft
from weft import errors
from weft.client import Client

__all__ = ["api", "api_settings"]  # fixtures

RUNTIME = Path(__file__).parents[2] / "trainer_images" / "runtime"
STUB = RUNTIME / "weft_trainer" / "stub"
HEAD = "import os\nimport weft\nfrom weft import Client\n\n"
PLAIN = '@weft.job\ndef train(lr, *more, name="x"):\n    return lr, more, name\n'

Import = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Write a module and import it."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def load(text: str, name: str = "trained") -> ModuleType:
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(HEAD + text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.fixture
def sent(double: Double, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Signed in at the double, which takes anything; returns the manifest of the last submission."""
    monkeypatch.setenv("WEFT_URL", double.url)
    monkeypatch.setenv("WEFT_TOKEN", "weft_u_test")
    monkeypatch.setattr(Client, "send_code", lambda self, bundle: True)
    double.on("POST", "jobs", as_json(job(state="QUEUED", reason=""), 201))

    def last() -> dict[str, Any]:
        manifest: dict[str, Any] = yaml.safe_load(double.requests("POST", "jobs")[-1].json["manifest"])
        return manifest

    return last


def in_learner(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a job's command as a learner does: without the package weft, which -S hides."""
    return subprocess.run(
        ["bash", "-c", command.replace("python ", f"{sys.executable} -S ", 1)],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(map(str, (folder, RUNTIME, STUB)))},
        capture_output=True,
        text=True,
        check=False,
    )


# --- the service ---------------------------------------------------------------------------------------------------

SCRIPT = """
@weft.job(learners=2, cpus=0.5, retries=2, env={"SEED": "7"})
def train(lr, sizes=(), text=""):
    print(f"{__name__} lr={lr} sizes={sizes} text={text}")
    if lr > 1:
        raise ValueError("lr is too large")


if __name__ == "__main__":
    assert train.remote(0.1, sizes=(1, {"a": None}), text="it's “$HOME”").state == "QUEUED"
    assert train.remote(lr=2).name == "train"
"""


def test_a_script_submits_its_function_and_a_learner_calls_it(api: Api, tmp_path: Path) -> None:
    person: Person = api.person()
    (tmp_path / "my-fit.py").write_text(HEAD + SCRIPT)
    environment = {**os.environ, "WEFT_URL": api.url, "WEFT_TOKEN": person.token}
    subprocess.run([sys.executable, "my-fit.py"], cwd=tmp_path, env=environment, check=True)
    with Client(api.url, person.token) as client:
        wrong, right = client.jobs.list()
        assert (right.name, right.learners, right.retries, right.framework.name) == ("train", 2, 2, "python")
        assert client.job(right.id).manifest["env"] == {"SEED": "7"}
        assert wrong.code_sha256 == right.code_sha256
        with zipfile.ZipFile(right.download_definition(tmp_path / "code.zip")) as archive:
            assert archive.namelist() == ["my-fit.py"]
            archive.extractall(tmp_path / "learner")
    done = in_learner(right.framework.command, tmp_path / "learner")
    assert done.stdout == "my-fit lr=0.1 sizes=[1, {'a': None}] text=it's “$HOME”\n", done.stderr
    done = in_learner(wrong.framework.command, tmp_path / "learner")
    assert done.returncode == 1
    assert 'my-fit.py", line ' in done.stderr
    assert done.stderr.endswith("ValueError: lr is too large\n")


def test_a_fault_of_the_options_is_the_manifests(api: Api, load: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_URL", api.url)
    monkeypatch.setenv("WEFT_TOKEN", api.person().token)
    module = load("@weft.job(learners=0, colour='red')\ndef train(): ...\n")
    with pytest.raises(errors.InvalidManifest) as caught:
        module.train.remote()
    assert {fault.path for fault in caught.value.problems} == {"learners", "colour"}


# --- the manifest ----------------------------------------------------------------------------------------------------


def test_the_manifest_of_a_call(load: Import, sent: Callable[[], dict[str, Any]]) -> None:
    module = load('@weft.job(gpus=1, memory="4Gb", packages=["timm"])\ndef fit(lr=1):\n    import keras\n', "inner.fit")
    assert module.fit.remote(lr=0.5).id == ID
    assert sent() == {
        "name": "fit",
        "learners": 1,
        "gpus": 1,
        "memory": "4Gb",
        "framework": {
            "name": "keras",
            "packages": ["timm"],
            "command": """python -m weft_trainer.function inner.fit:fit '{"lr": 0.5}'""",
        },
    }
    framework = '{"name": "pytorch", "version": "2.13", "launcher": "none"}'
    load(f'@weft.job(name="x", framework={framework})\ndef fit(): ...\n', "other").fit.remote()
    made = sent()
    assert made["name"] == "x"
    assert made["framework"].items() >= {"name": "pytorch", "version": "2.13", "launcher": "none"}.items()


def test_a_plain_call_runs_here(load: Import) -> None:
    module = load(PLAIN)
    assert module.train(0.1, 2, name="y") == (0.1, (2,), "y")
    assert (module.train.__name__, module.train.__module__) == ("train", "trained")
    assert pickle.loads(pickle.dumps(module.train)) is module.train, "torch.multiprocessing sends functions"


def test_the_folder_is_that_of_the_topmost_package(
    load: Import, sent: Callable[[], dict[str, Any]], double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles: list[list[str]] = []

    def look(self: Client, bundle: Any) -> bool:
        bundles.append(zipfile.ZipFile(bundle.path).namelist())
        return True

    monkeypatch.setattr(Client, "send_code", look)
    load("", "pack.__init__")
    module = load(PLAIN, "pack.trained")
    (Path(str(module.__file__)).parents[1] / "manifest.yml").write_text("name: secret\n")
    module.train.remote(1, 2, name="z")
    assert bundles == [["pack/__init__.py", "pack/trained.py"]]
    command = """python -m weft_trainer.function pack.trained:train '{"name": "z"}' '[1, 2]'"""
    assert sent()["framework"]["command"] == command
    seen: list[Seen] = double.requests("POST", "jobs")
    assert seen[0].headers["authorization"] == "Bearer weft_u_test"


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"lr": Path("x")}, errors.WeftError, r"train\(\): argument lr is PosixPath\('x'\), a PosixPath; accepted are"),
        ({"lr": [1, {"a": {2}}]}, errors.WeftError, r"argument lr\[1\]\['a'\] is \{2\}, a set"),
        ({"lr": {1: 2}}, errors.WeftError, r"argument lr has the key 1; the keys of a dict must be text"),
        ({"rate": 1, "lr": 1}, TypeError, "unexpected keyword argument 'rate'"),
        ({}, TypeError, "missing a required argument: 'lr'"),
    ],
)
def test_arguments_that_can_not_be_sent(
    load: Import, double: Double, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    module = load("@weft.job\ndef train(lr): ...\n")
    with pytest.raises(error, match=said):
        module.train.remote(**arguments)
    assert not double.seen


def test_functions_that_learners_would_not_find(load: Import, tmp_path: Path) -> None:
    def inner() -> None: ...

    class Trainer:
        def train(self) -> None: ...

    async def later() -> None: ...

    later.__qualname__ = "later"
    for function, said in (
        (inner, "inner can't be a job, because learners find a function by its name: move it to the top"),
        (Trainer.train, r"Trainer\.train can't be a job"),
        (lambda: None, "can't be a job"),
        (later, "it is a coroutine or a generator"),
        (print, "decorates a function, not <built-in function print>"),
    ):
        with pytest.raises(errors.WeftError, match=said):
            weft.job(function)
    with pytest.raises(errors.WeftError, match=r"eager calls train\.remote\(\) on its import; .*__main__"):
        load("@weft.job\ndef train(): ...\ntrain.remote()\n", "eager")
    typed = "import weft\n@weft.job\ndef train(): ...\ntrain.remote()\n"
    (tmp_path / "fit.v2.py").write_text(typed)
    for call, said in (
        (["-c", typed], "train is not in a file (a notebook?)"),
        (["fit.v2.py"], "fit.v2.py can't be imported as a module: rename it to fit_v2.py"),
    ):
        done = subprocess.run([sys.executable, *call], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said in done.stderr


def test_a_refused_folder(load: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(PLAIN)
    monkeypatch.setenv("HOME", str(Path(str(module.__file__)).parent))
    with pytest.raises(errors.BundleError, match=r"your home folder, .* move trained\.py"):
        module.train.remote(1)


def test_the_import_of_a_module_with_a_job_costs_little() -> None:
    script = "import sys, weft; weft.job; print(sorted({'httpx', 'yaml', 'weft.client', 'ast'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "weft.client" not in done.stdout
    assert "httpx" not in done.stdout


def test_a_server_that_refuses(load: Import, sent: Callable[[], dict[str, Any]], double: Double) -> None:
    double.on("POST", "jobs", problem(403, "forbidden", "an editor's token is needed"))
    with pytest.raises(errors.PermissionDenied, match="an editor's token is needed"):
        load(PLAIN).train.remote(1)
