"""``python -m weft_workers.engines.local interrupt --home HOME [--grace SECONDS]``: take back all runs, in order;
``… attached --home HOME``: one run, which ends with its caller (`weft run`)."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

import argparse
import sys
from pathlib import Path

from weft_core.processes import collect_again
from weft_workers.engines.local.attached import attached
from weft_workers.engines.local.interrupt import interrupt


def main() -> int:
    collect_again()
    parser = argparse.ArgumentParser(prog="python -m weft_workers.engines.local", description="The local engine.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("interrupt", help="stop all learners; their jobs go on when the service is back")
    command.add_argument("--home", type=Path, required=True, help="the installation's folder")
    command.add_argument("--grace", type=float, default=20.0, metavar="SECONDS", help="from SIGTERM to SIGKILL")
    command = commands.add_parser("attached", help="one run, described on standard input, which ends it when it ends")
    command.add_argument("--home", type=Path, required=True, help="holds the run's folder while it lasts")
    given = parser.parse_args()
    if given.command == "attached":
        return attached(given.home)
    ended, left = interrupt(given.home, given.grace)
    print(f"{len(ended)} runs interrupted")
    for name in left:
        print(f"still there: {name}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
