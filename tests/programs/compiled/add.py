"""A library that compiles a part of itself when it starts, as PyTorch's extensions do: into ~/.cache."""

import ctypes
import subprocess
from pathlib import Path

folder = Path.home() / ".cache/extensions/add"
folder.mkdir(parents=True)
(folder / "add.c").write_text("int add(int a, int b) { return a + b; }\n")
subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "add.so", folder / "add.c"], check=True)
print("sum", ctypes.CDLL(str(folder / "add.so")).add(3, 4), flush=True)
