"""Stands for an environment's python in the tests of Horovod's build: pip and the frameworks without their minutes.

``fake.json`` beside it holds its instructions; it records its calls in ``calls`` there.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(sys.argv[0]).parent
PLAN = json.loads((HERE / "fake.json").read_text())


def note(call: str) -> None:
    with (HERE / "calls").open("a") as file:
        file.write(call + "\n")


def download(arguments: list[str]) -> int:
    note("download")
    with tarfile.open(Path(arguments[arguments.index("--dest") + 1]) / "horovod-0.28.1.tar.gz", "w:gz") as archive:
        for name, text in PLAN["source"].items():
            member = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return 0


def wheel(arguments: list[str]) -> int:
    note("wheel")
    shutil.copytree(arguments[-1], HERE / "compiled", dirs_exist_ok=True)
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
    if "download" in arguments:
        return download(arguments)
    if "wheel" in arguments:
        return wheel(arguments)
    note(f"install {Path(arguments[-1]).read_text()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
