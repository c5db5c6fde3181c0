"""Weights of each format are read without PyTorch, and a file that holds more than weights is refused.

``state.pt`` is what PyTorch 2.13 has saved.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.drill.weights import Unreadable, difference, read

STATE = Path(__file__).with_name("state.pt")


def test_a_state_dict_of_pytorch() -> None:
    found = read(STATE)
    assert found["model/0.bias"].tolist() == [-0.665696382522583, 0.42406412959098816]
    assert found["optimizer/state/3/momentum_buffer"].tolist() == [3.0, 3.0]
    assert (found["half"].tolist(), found["turned"].tolist()) == ([1.5, -2.0], [[1.0, 4.0], [2.0, 5.0]])
    assert (found["parameter"].tolist(), found["epoch"].tolist()) == ([7.0], 3)


def test_arrays_and_safetensors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(3.0), b=np.eye(2))
    np.save(tmp_path / "b.npy", np.arange(4))
    tensors = {"half": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}, "__metadata__": {"format": "pt"}}
    header = json.dumps(tensors).encode()
    (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\xc0\x3f\x00\xc0")
    assert read(tmp_path / "a.npz")["b"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert read(tmp_path / "b.npy")[""].tolist() == [0, 1, 2, 3]
    assert read(tmp_path / "c.safetensors")["half"].tolist() == [[1.5, -2.0]]


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("attacked",)


def archive(path: Path, value: Any) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("model/data.pkl", value if isinstance(value, bytes) else pickle.dumps(value, protocol=2))
        made.writestr("model/data/0", bytes(8))
    return path


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in ({"model": _Attack()}, {"tokens": ["no", "tensor"]}):
        with pytest.raises(Unreadable):
            read(archive(tmp_path / "model.pt", value))
    # A tensor of 4 numbers, whose storage has 2.
    with zipfile.ZipFile(STATE) as made:
        [name] = [name for name in made.namelist() if name.endswith("data.pkl")]
        pickled = made.read(name)
    with pytest.raises(Unreadable):
        read(archive(tmp_path / "model.pt", pickled))
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06" + bytes(18), b"\x93NUMPY", STATE.read_bytes()[:900]])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(Unreadable):
        read(tmp_path / "model.pt")


def test_tensors_differ_by_more_than_the_limit() -> None:
    before = {"a": np.array([1.0, 100.0]), "b": np.array([0.0, np.nan]), "c": np.zeros(2)}
    assert difference(before, {name: array.copy() for name, array in before.items()}, 0).differing == ()
    after = {"a": np.array([1.0, 100.1]), "b": np.array([0.0, 1.0]), "d": np.zeros(2)}
    found = difference(before, after, 1e-2)
    assert (found.tensors, found.differing, found.worst) == (2, ("b", "c", "d"), "b")
    assert difference(before, after, 1e-4).differing == ("a", "b", "c", "d")
    assert difference({"": np.array([1.0])}, {"": np.array([[1.0]])}, 1).differing == ("",)
