"""The line of the manifest that a failed program lacked, by the exception that ended the program."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

EXCEPTION = re.compile(r"(?:\[[^\]]*\]:? ?)*(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception|Interrupt|Exit)\b(?:: |$)")
"""The end of a traceback: the exception's name, then its message. A label of the process may stand before it."""

_NO_RANK = re.compile(
    r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set"  # torch.distributed
    r"|KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
)
_NO_MODULE = re.compile(
    r"(?:ModuleNotFound|Import)Error: No module named '?(\w+)'?(?:[;.,] |$)"  # 'a.b': a is there
    r"|python[\d.]*: No module named (\w+)$"  # `python -m NAME`
    r"|python[\d.]*: Error while finding module .*\(ModuleNotFoundError: No module named '(\w+)'\)"
)
_NAME = r"([A-Za-z][\w.-]*\w(?:\[[\w,-]+\])?)"
_TO_INSTALL = re.compile(rf"\bpip3? install (?:-U |--upgrade )?['\"]?{_NAME}|\binstall ['\"`]{_NAME}['\"`]")
_KERAS_3 = "with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor"
_NO_HUB = re.compile(
    r"We couldn't connect to 'https?://\S+' to load the files"  # transformers; then huggingface_hub and datasets
    r"|outgoing traffic has been disabled|: offline mode is enabled|cannot find the requested files in the local cache"
    r"|Couldn't reach .* on the Hub \(|Couldn't reach the Hugging Face Hub"
)
_KERAS_3_VARIABLE = "AttributeError: 'Variable' object has no attribute 'ref'"

_FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow", "horovod": "horovod", "ray": "ray"}
"""The frameworks that have a module. A package of the same name would not fit the rest of the image."""
_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google": "protobuf",
    "hydra": "hydra-core",
    "mpl_toolkits": "matplotlib",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
"""Packages whose names are not those of their modules."""
_OLD_PYTHON = """
    ConfigParser Queue StringIO Tkinter asynchat asyncore cPickle cStringIO cgi commands distutils httplib imp md5 pipes
    sets telnetlib urllib2 urlparse
"""
_OF_USERS = "common config data dataset helpers lib model models options src test tests tools train util utils"
"""Modules that users forget to send along. There are packages with these names, which nobody means."""
_OTHERS = "apex clip"
"""Modules that are not on PyPI. The packages with these names are others."""
_NOT_PACKAGES = frozenset(f"{_OLD_PYTHON} {_OF_USERS} {_OTHERS}".split())
_OF_TORCH = ("torchvision", "torchaudio")
"""Packages that work with one build of torch (weft_trainer.packages.fixed)."""
_MOST_FOLDERS = 2000


def find_hint(last_lines: Sequence[str], folder: Path | None = None) -> str:
    """A hint for a program that failed after ``last_lines``; else empty.

    Only the last exception counts: the program has overcome the others.

    Args:
        folder: of the user's code.
    """
    ends = [at for at, line in enumerate(last_lines) if EXCEPTION.match(line) or _NO_MODULE.search(line)]
    message = last_lines[ends[-1] if ends else 0 :]  # the first lines of a long message may be gone
    first = message[0] if message else ""
    if any(_KERAS_3 in line for line in message):
        return (
            "Keras 3 can't fit() over several learners; "
            '`env: {TF_USE_LEGACY_KERAS: "1"}` makes `tf.keras` Keras 2, which can'
        )
    if _KERAS_3_VARIABLE in first:  # Horovod's DistributedGradientTape
        return (
            "Keras 3's variables are not TensorFlow's, which this code expects; "
            '`env: {TF_USE_LEGACY_KERAS: "1"}` makes `tf.keras` Keras 2'
        )
    if "ValueError: Number of processes must be defined" in first:  # JAX
        return (
            "JAX does not find its gang by itself: jax.distributed.initialize("
            "num_processes=int(os.environ['JAX_NUM_PROCESSES']), process_id=int(os.environ['JAX_PROCESS_ID']))"
        )
    if any(_NO_HUB.search(line) for line in message):
        return (
            "put the files into S3 and name their place by `pretrained_model`; where learners reach the Hub, "
            '`env: {HF_HUB_OFFLINE: "0"}` has it asked'
        )
    if _NO_RANK.search(first):
        return "`framework: {launcher: torchrun}` sets RANK, WORLD_SIZE and the rest"
    if found := _NO_MODULE.search(first):
        return _for_module(next(filter(None, found.groups())), folder)
    if "ImportError: " in first and (found := _TO_INSTALL.search(" ".join(message))):
        name = found[1] or found[2]
        return "" if _is_installed(name) else _packages(name)
    return ""


def _for_module(name: str, folder: Path | None) -> str:
    """The hint for a module that Python did not find, unless no package would help."""
    if name.startswith("_") or name in _NOT_PACKAGES or name in getattr(sys, "stdlib_module_names", ()):
        return ""
    if importlib.util.find_spec(name) or _is_own(name, folder):  # it is here, and the program looked elsewhere
        return ""
    if name in _FRAMEWORKS:
        return f"`framework: {{name: {_FRAMEWORKS[name]}}}` has the module {name}"
    return _packages(_DISTRIBUTIONS.get(name, name))


def _packages(name: str) -> str:
    torch = _version("torch")
    if name in _OF_TORCH and "+" in torch:  # PyPI has no build that fits, but another index may
        what = f"`framework: {{packages: [{name}], index: {{url: URL}}}}`"
        return f"{what} adds what is missing, with an index that has {name} for torch {torch}"
    quoted = f'"{name}"' if "[" in name else name
    return f"`framework: {{packages: [{quoted}]}}` adds what is missing"


def _is_own(module: str, folder: Path | None) -> bool:
    """Whether the module is in some folder of the user's code."""
    if folder is None:
        return False
    return any(
        f"{module}.py" in files or (Path(parent).name == module and any(name.endswith(".py") for name in files))
        for parent, _, files in islice(os.walk(folder), _MOST_FOLDERS)
    )


def _is_installed(name: str) -> bool:
    return bool(_version(name))  # not found with extras, which may be missing where the package is not


def _version(name: str) -> str:
    """Of a package of the image; empty: it has none."""
    from importlib import metadata  # 10 ms; only programs that have failed get hints

    try:
        return metadata.distribution(name).version
    except metadata.PackageNotFoundError:
        return ""
