"""The line of the manifest that a failed program lacked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi

from weft_trainer.program.endings import describe
from weft_trainer.program.hints import find_hint

TRACEBACK = "Traceback (most recent call last):"
KERAS_3 = [
    "ValueError: Attempt to convert a value (PerReplica:{",
    "  0: <tf.Tensor: shape=(4, 8), dtype=float32, numpy=",
    "array([[0.9608462 , 0.44171125, 0.06253496, 0.82631713, 0.27690163,",
    "        0.07119427, 0.20068347, 0.19387397]], dtype=float32)>",
    "}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.",
]
LEGACY_KERAS = '`env: {TF_USE_LEGACY_KERAS: "1"}` makes `tf.keras` Keras 2'


def packages(name: str) -> str:
    return f"`framework: {{packages: [{name}]}}` adds what is missing"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ModuleNotFoundError: No module named 'some_package'", "some_package"),
        ("[1] [rank3]: ModuleNotFoundError: No module named 'cv2'", "opencv-python-headless"),
        ("ModuleNotFoundError: No module named 'skimage'", "scikit-image"),
        ("ImportError: No module named some_package", "some_package"),
        ("ImportError: No module named 'some_package'. It reads images.", "some_package"),
        ("/opt/env/bin/python3.11: No module named some_package", "some_package"),
        (
            "python: Error while finding module specification for 'some_package.run' (ModuleNotFoundError: "
            "No module named 'some_package')",
            "some_package",
        ),
        (
            "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`: Please run "
            "`pip install transformers[torch]` or `pip install 'accelerate>=1.1.0'`",
            '"transformers[torch]"',
        ),
        ("ImportError: To support decoding audio data, please install 'some-codec'.", "some-codec"),
    ],
)
def test_a_package_that_is_missing(line: str, name: str) -> None:
    assert find_hint([TRACEBACK, line]) == packages(name)
    assert describe(1, "python train.py", [TRACEBACK, line]).reason == f"exit code 1; {packages(name)}"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "2.13.0+cpu",
            "`framework: {packages: [torchvision], index: {url: URL}}` adds what is missing, with an index that has "
            "torchvision for torch 2.13.0+cpu",
        ),
        ("2.13.0", packages("torchvision")),
    ],
)
def test_torchvision_comes_in_the_build_that_fits(
    version: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_hint([TRACEBACK, "ModuleNotFoundError: No module named 'torchvision'"]) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ["ModuleNotFoundError: No module named 'tomllib'"],  # the standard library
        ["ModuleNotFoundError: No module named '_ctypes'"],  # of a Python that was built without it
        ["ModuleNotFoundError: No module named 'urllib2'"],  # of Python 2
        ["ModuleNotFoundError: No module named 'psutil.metrics'"],  # the package is there
        ["ModuleNotFoundError: No module named 'train.nets'; 'train' is not a package"],
        ["ModuleNotFoundError: No module named 'psutil'"],  # here; the program runs another Python
        ["ModuleNotFoundError: No module named 'utils'"],  # nobody's package
        ["ImportError: cannot import name 'x' from 'psutil'"],
        ["ImportError: psutil is too old. Try: pip install psutil -U"],
        ["ModuleNotFoundError: No module named 'some_package'", TRACEBACK, "ValueError: no images"],  # overcome
        ["some_package: No module named by this line"],
        [],
    ],
)
def test_no_package_would_help(lines: list[str]) -> None:
    assert find_hint(lines) == ""


@pytest.mark.parametrize("path", ["nets.py", "src/nets.py", "src/nets/__init__.py", "nets/model.py"])
def test_the_users_own_modules_are_no_packages(path: str, tmp_path: Path) -> None:
    lines = [TRACEBACK, "ModuleNotFoundError: No module named 'nets'"]
    (tmp_path / "nets").mkdir()
    assert find_hint(lines, tmp_path) == packages("nets"), "a folder without modules"
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert find_hint(lines, tmp_path) == ""


def test_a_framework_is_an_image_and_no_package() -> None:
    hint = find_hint([TRACEBACK, "ModuleNotFoundError: No module named 'horovod'"])
    assert hint == "`framework: {name: horovod}` has the module horovod"


@pytest.mark.parametrize("lines", [[TRACEBACK, *KERAS_3], KERAS_3[2:]])  # all of it, and the end of a long one
def test_keras_3_over_several_learners(lines: list[str]) -> None:
    assert LEGACY_KERAS in find_hint(lines)
    assert find_hint([*lines, TRACEBACK, "ValueError: no images"]) == ""


def test_keras_3_with_horovods_gradient_tape() -> None:
    lines = [TRACEBACK, "AttributeError: 'Variable' object has no attribute 'ref'", "", ""]
    assert LEGACY_KERAS in find_hint(lines)
    assert find_hint([TRACEBACK, "AttributeError: 'Variable' object has no attribute 'reference'"]) == ""


@pytest.mark.parametrize(
    "line",
    [
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
        "outgoing traffic has been disabled. To enable hf.co look-ups, set 'local_files_only' to False.",
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub "
        "and we cannot find the requested files in the local cache. Please check your connection and try again",
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/: offline mode is enabled.",
        "ConnectionError: Couldn't reach 'imdb' on the Hub (OfflineModeIsEnabled)",
    ],
)
def test_files_of_the_hub_come_from_s3(line: str) -> None:
    assert "`pretrained_model`" in find_hint([TRACEBACK, line])


def test_jax_is_told_its_gang() -> None:
    hint = find_hint([TRACEBACK, "ValueError: Number of processes must be defined."])
    assert "num_processes=int(os.environ['JAX_NUM_PROCESSES'])" in hint


def test_real_imports_through_the_agent(start_api: StartApi, launch: Launch) -> None:
    command = "mkdir src; touch src/nets.py; python -c 'import cv2'"
    api = start_api(command)
    assert launch(api).wait() == 1
    assert api.learners[0].exit_reason == f"exit code 1; {packages('opencv-python-headless')}"
    own = start_api(command.replace("cv2", "nets"))
    assert launch(own, folder="own").wait() == 1
    assert own.learners[0].exit_reason == "exit code 1"
