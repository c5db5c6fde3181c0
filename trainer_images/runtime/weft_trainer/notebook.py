"""``python -m weft_trainer.notebook``: JupyterLab as the program of a job. ``weft notebook`` writes the command.

JupyterLab works in ``CHECKPOINT_DIR``, which begins with a copy of the job's code. So the notebooks survive the loss of
the learner, and a halt; at the end they go into the results, too. The token is made here and stays in the learner:
``--address`` prints it, beside the program, for those who may open a tunnel.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

_PATIENCE = 120.0
_LOOK = 0.2
_CULL_EVERY = 60
"""Seconds between two checks for idle kernels."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="weft_trainer.notebook", description=__doc__)
    parser.add_argument(
        "--idle", type=int, default=0, help="seconds without any activity after which it ends; 0: never"
    )
    parser.add_argument("--address", action="store_true", help="print the port and the token of the one that runs")
    options = parser.parse_args(arguments)
    runtime = Path.home() / ".weft-notebook"
    return _print_address(runtime) if options.address else _serve(runtime, options.idle)


def _serve(runtime: Path, idle: int) -> int:
    """Run JupyterLab to its end, and keep its files; returns its exit code."""
    folder = Path(os.environ["CHECKPOINT_DIR"])
    if not any(folder.iterdir()):
        shutil.copytree(os.getcwd(), folder, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(runtime, ignore_errors=True)
    runtime.mkdir(mode=0o700)
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"),
            f"--ServerApp.root_dir={folder}",
            *("--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
            *_limits(idle),
        ],
        # A token that Jupyter is given does not appear in its log.
        env={**os.environ, **_places(), "JUPYTER_TOKEN": secrets.token_hex(24), "JUPYTER_RUNTIME_DIR": str(runtime)},
        cwd=folder,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.terminate())
    code = server.wait()
    shutil.copytree(folder, os.environ["RESULT_DIR"], symlinks=True, dirs_exist_ok=True)
    return max(code, 0)


def _places() -> dict[str, str]:
    """Variables for the files of a JupyterLab from the job's packages: it looks for them beside the interpreter."""
    found = find_spec("jupyterlab")
    if found is None or found.origin is None:
        return {}
    top = Path(found.origin).parents[1]
    share, settings = top / "share/jupyter", top / "etc/jupyter"
    if not share.is_dir():
        return {}
    return {"JUPYTER_PATH": str(share), "JUPYTERLAB_DIR": str(share / "lab"), "JUPYTER_CONFIG_PATH": str(settings)}


def _limits(idle: int) -> list[str]:
    """Options that end kernels and terminals without activity, and then the server. Kernels that compute are active."""
    if not idle:
        return []
    return [
        f"--ServerApp.shutdown_no_activity_timeout={idle}",
        f"--MappingKernelManager.cull_idle_timeout={idle}",
        f"--MappingKernelManager.cull_interval={min(idle, _CULL_EVERY)}",
        "--MappingKernelManager.cull_connected=True",
        f"--TerminalManager.cull_inactive_timeout={idle}",
    ]


def _print_address(runtime: Path) -> int:
    """Print ``{"port": …, "token": …}`` once JupyterLab listens."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        for found in runtime.glob("jpserver-*.json"):
            try:
                told = json.loads(found.read_text())
            except ValueError:  # it is being written
                continue
            print(json.dumps({"port": told["port"], "token": told["token"]}))
            return 0
        time.sleep(_LOOK)
    print("JupyterLab does not listen; the job's log may say why", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
