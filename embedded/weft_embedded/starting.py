"""``weft up``: on this terminal, or in the background."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from weft_embedded import sign_in
from weft_embedded.config import create_config, read_settings
from weft_embedded.home import Home, HomeError, State
from weft_embedded.processes import ProcessId
from weft_embedded.screen import Screen, panel
from weft_embedded.stack import Choice, Stack
from weft_embedded.supervisor import Supervisor


def up(home: Home, options: argparse.Namespace) -> int:
    """Run a stack until a signal ends it; returns the exit code."""
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


def detach(home: Home, in_front: Callable[[], int]) -> int:
    """Run a stack in the background and wait until it is ready; returns the exit code.

    Args:
        in_front: runs it as on a terminal.
    """
    home.open()
    if home.locked():
        print(home.who())
        _invite(home)
        return 0
    log = home.logs / "supervisor.log"
    begin = log.stat().st_size if log.exists() else 0
    supervisor = _in_background(in_front, log)
    told = ""
    while (ended := os.waitpid(supervisor, os.WNOHANG))[0] == 0:
        state = home.load_state()
        ours = state.supervisor is not None and state.supervisor.pid == supervisor
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
    return os.waitstatus_to_exitcode(ended[1]) or 1


def _in_background(run: Callable[[], int], log: Path) -> int:
    """Run it in a fork of this process, which has all of its modules and neither threads nor connections; the pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        with open(os.devnull) as nothing, log.open("ab") as output:
            os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        status = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _invite(home: Home) -> None:
    """Print a link that signs a browser in, if there is an API (already)."""
    if not any(part.name == "api" and part.state == "running" for part in home.load_state().parts):
        return
    stack = Stack(home, read_settings(home), Choice())
    stack.choose_host(None)
    print(sign_in.invitation(stack))
