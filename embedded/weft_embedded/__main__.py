"""``python -m weft_embedded up|down|status|env``; ``weft up`` and its siblings are the same."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from weft_embedded import sign_in
from weft_embedded.config import create_config, read_settings
from weft_embedded.ending import end_leftovers, end_running
from weft_embedded.home import Home, HomeError, State
from weft_embedded.part import PartError
from weft_embedded.processes import ProcessId
from weft_embedded.screen import Screen, panel
from weft_embedded.stack import Choice, Stack, running_jobs
from weft_embedded.supervisor import StartFailed, Supervisor

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
    home = Home(options.home)
    actions = {"up": _up, "down": _down, "status": _status, "env": _env}
    try:
        return actions[options.action](home, options)
    except (HomeError, StartFailed, PartError) as error:
        print(f"weft {options.action}: {error}", file=sys.stderr)
        return 1


def _up(home: Home, options: argparse.Namespace) -> int:
    if options.detach:
        return _detach(home, options)
    home.open()
    with home.lock():
        # `weft down` may ask for the end from now on; the supervisor hears of it when it has begun.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        home.forget_state()
        try:
            home.save_state(State(supervisor=ProcessId.of_self()))
            create_config(home)
            choice = Choice(api=not options.no_api, worker=not options.no_worker, profile=not options.no_profile)
            stack = Stack(home, read_settings(home), choice)
            for part in stack.leftovers():
                part.end_leftover()
            stack.choose_host(options.host)
            stack.choose_port(options.port)
            with Screen(Console()) as screen:
                Supervisor(stack, screen).run()
        except OSError as error:
            raise HomeError(f"{error.strerror or error} ({error.filename or home.path})") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return 0


def _detach(home: Home, options: argparse.Namespace) -> int:
    """Start ``up`` in the background and wait until it is ready."""
    home.open()
    if home.locked():
        print(home.who())
        _invite(home)
        return 0
    flags = [f"--{name.replace('_', '-')}" for name in ("no_profile", "no_api", "no_worker") if getattr(options, name)]
    if options.port is not None:
        flags += ["--port", str(options.port)]
    if options.host is not None:
        flags += ["--host", options.host]
    log = home.logs / "supervisor.log"
    begin = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft_embedded", "up", "--home", str(home.path), *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    told = ""
    while process.poll() is None:
        state = home.load_state()
        ours = state.supervisor is not None and state.supervisor.pid == process.pid
        if ours and state.ready:
            Console().print(panel(state, home, 0, detached=True))
            _invite(home)
            return 0
        if ours and state.doing and state.doing != told:
            told = state.doing
            print(told, flush=True)
        time.sleep(0.1)
    said = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    print(said[-1] if said else f"weft up: it ended at once (log: {log})", file=sys.stderr)
    return process.returncode or 1


def _invite(home: Home) -> None:
    """Print a link that signs a browser in, if there is an API (already)."""
    if not any(part.name == "api" and part.state == "running" for part in home.load_state().parts):
        return
    stack = Stack(home, read_settings(home), Choice())
    stack.choose_host(None)
    print(sign_in.invitation(stack))


def _down(home: Home, options: argparse.Namespace) -> int:
    if not home.exists():
        print(f"nothing runs: there is no home {home.path}")
        return 0
    home.open(check_room=False)
    if home.locked() and end_running(home, options.grace):
        print("all is stopped")
        return 0
    with home.lock():
        ended = end_leftovers(Stack(home, read_settings(home), Choice()), options.grace)
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
        stack = Stack(home, read_settings(home), Choice())
        Console().print(panel(state, home, running_jobs(stack.database_url()), detached=True))
    else:
        print(f"not running (home {home.path}): `weft up` starts it")
    return 0 if running else 3


def _env(home: Home, options: argparse.Namespace) -> int:
    if not home.config.exists():
        where = shlex.quote(str(home.path))
        raise HomeError(f"no Weft was started in {home.path}: `weft up --home {where}` starts one there")
    home.open(check_room=False)
    stack = Stack(home, read_settings(home), Choice())
    stack.choose_host(None)
    for name, value in sorted(stack.environment().items()):
        if name.startswith("WEFT_"):
            print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
