"""``python -m weft_embedded up|down|status|env``; ``weft up`` and its siblings are the same."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

# isort: split

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from weft_core.processes import collect_again
from weft_embedded.ending import end_leftovers, end_running
from weft_embedded.home import EmbeddedError, Home, HomeError

if TYPE_CHECKING:
    from weft_embedded.stack import Stack

_DEFAULT_HOME = "~/.weft"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="Run a complete Weft on this machine.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="up|down|status|env")
    up = actions.add_parser("up", help="start PostgreSQL, Redis, S3, the API and a worker, and keep them running")
    up.add_argument(
        "--detach", "-d", action="store_true", help="run in the background; the command returns when all are ready"
    )
    up.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address of this machine on which the API and S3 listen; pods and other machines can then reach them, "
        "with tokens and credentials but without TLS (default: as last time, at first 127.0.0.1, this machine alone)",
    )
    up.add_argument(
        "--port", type=int, help="port of the API; 0 picks a free port (default: as last time, at first 8080)"
    )
    up.add_argument(
        "--no-profile", action="store_true", help="do not change the CLI's profile file; client.toml is still written"
    )
    up.add_argument("--no-api", action="store_true", help="do not start the API; to start it yourself, see `weft env`")
    up.add_argument(
        "--no-worker", action="store_true", help="do not start the worker; to start it yourself, see `weft env`"
    )
    down = actions.add_parser("down", help="stop the running jobs, and then everything that `weft up` started")
    down.add_argument("--grace", type=float, metavar="SECONDS", help="time for learners to save a checkpoint")
    status = actions.add_parser("status", help="show what runs; the exit code is 3 if nothing does")
    status.add_argument("--json", action="store_true", help="print JSON")
    env = actions.add_parser(
        "env", help="print the services' environment variables as shell exports, which contain secrets"
    )
    default = os.environ.get("WEFT_HOME") or _DEFAULT_HOME
    for command in (up, down, status, env):
        command.add_argument(
            "--home", type=Path, default=Path(default), help=f"folder of the whole installation (default: {default})"
        )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    if not sys.platform.startswith("linux"):
        print("weft: `weft up` runs on Linux only; use docker-compose.yml elsewhere", file=sys.stderr)
        return 1
    return _run(Home(options.home), options)


def _run(home: Home, options: argparse.Namespace) -> int:
    actions = {"up": _up, "down": _down, "status": _status, "env": _env}
    try:
        return actions[options.action](home, options)
    except EmbeddedError as error:
        print(f"weft {options.action}: {error}", file=sys.stderr)
        return 1


def _up(home: Home, options: argparse.Namespace) -> int:
    from weft_embedded import starting  # only here: the others are over before all that it needs is loaded

    collect_again()
    if not options.detach:
        return starting.up(home, options)
    options.detach = False
    return starting.detach(home, lambda: _run(home, options))


def _down(home: Home, options: argparse.Namespace) -> int:
    if not home.exists():
        print(f"nothing runs: there is no home {home.path}")
        return 0
    home.open(check_room=False)
    if home.locked() and end_running(home, options.grace):
        print("all is stopped")
        return 0
    with home.lock():
        ended = end_leftovers(_stack(home), options.grace)
    print(f"ended what was left of it: {', '.join(ended)}" if ended else "nothing runs")
    return 0


def _status(home: Home, options: argparse.Namespace) -> int:
    running = home.exists() and home.locked()
    state = home.load_state()
    if options.json:
        print(
            json.dumps({"running": running, "home": str(home.path), **asdict(state)} if running else {"running": False})
        )
    elif running:
        from rich.console import Console

        from weft_embedded.screen import panel
        from weft_embedded.stack import running_jobs

        Console().print(panel(state, home, running_jobs(_stack(home).database_url()), detached=True))
    else:
        print(f"not running (home {home.path}): `weft up` starts it")
    return 0 if running else 3


def _env(home: Home, options: argparse.Namespace) -> int:
    if not home.config.exists():
        where = shlex.quote(str(home.path))
        raise HomeError(f"no Weft was started in {home.path}: `weft up --home {where}` starts one there")
    home.open(check_room=False)
    stack = _stack(home)
    stack.choose_host(None)
    for name, value in sorted(stack.environment().items()):
        if name.startswith("WEFT_"):
            print(f"export {name}={shlex.quote(value)}")
    return 0


def _stack(home: Home) -> Stack:
    from weft_embedded.config import read_settings
    from weft_embedded.stack import Choice, Stack

    return Stack(home, read_settings(home), Choice())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
