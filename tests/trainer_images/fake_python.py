"""Stands for an environment's python in the tests of Horovod's build: pip and the frameworks without their minutes.

What it is to do stands in ``fake.json`` beside it; what it was asked to do goes to ``calls`` there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[0]).parent
PLAN = json.loads((HERE / "fake.json").read_text())


def note(call: str) -> None:
    with (HERE / "calls").open("a") as file:
        file.write(call + "\n")


def wheel(arguments: list[str]) -> int:
    note("wheel")
    subprocess.run([os.environ["CXX"], "-O3", "-g", "-std=c++14", "mpi_ops.cc"], check=True)
    subprocess.run([os.environ["CXX"], "-std=c++14", "xla_mpi_ops.cc"], check=True)
    print("[ 50%] Building CXX object mpi_ops.cc.o", flush=True)
    (HERE / "compiling").write_text(str(os.getpid()))
    while not (HERE / "go-on").exists():
        time.sleep(0.01)
    if PLAN.get("compile_fails"):
        print("mpi_ops.cc:1: error: no such thing", flush=True)
        return 1
    folder = Path(arguments[arguments.index("--wheel-dir") + 1])
    folder.mkdir()
    (folder / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").write_text("wheel")
    return 0


def main(arguments: list[str]) -> int:
    if arguments[0] == "-c":
        if "importlib.metadata" not in arguments[1]:  # is what was installed any good?
            print(PLAN.get("load_fails", ""), file=sys.stderr)
            return 1 if "load_fails" in PLAN else 0
        print(json.dumps({"python": "cpython-311", "torch": PLAN.get("torch"), "tensorflow": PLAN.get("tensorflow")}))
        return 0
    if "wheel" in arguments:
        return wheel(arguments)
    note(f"install {Path(arguments[-1]).read_text()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
