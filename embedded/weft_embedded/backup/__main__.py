"""``python -m weft_embedded.backup backup|restore``; ``weft backup`` and ``weft restore`` are the same."""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from weft_embedded.backup.archive import Archive
from weft_embedded.backup.report import Report
from weft_embedded.backup.restoring import check, restore
from weft_embedded.backup.taking import back_up
from weft_embedded.home import Home, HomeError

_DEFAULT_HOME = "~/.weft"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="weft", description="Back up an embedded installation, and restore it.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="backup|restore")
    backup = actions.add_parser("backup", help="write everything that `weft up` keeps into one file, while it runs")
    backup.add_argument("target", type=Path, metavar="FILE_OR_DIR", help="the file to write, or a folder for it")
    backup.add_argument("--encrypt", action="store_true", help="encrypt it with a passphrase, which is asked for")
    restored = actions.add_parser("restore", help="make an installation from a backup, on this machine or another one")
    restored.add_argument("file", type=Path, metavar="FILE", help="a backup")
    restored.add_argument("--check", action="store_true", help="only check that the file is complete and undamaged")
    default = os.environ.get("WEFT_HOME") or _DEFAULT_HOME
    for command in (backup, restored):
        command.add_argument(
            "--passphrase-file",
            type=Path,
            metavar="FILE",
            help="take the passphrase from the first line of this file, instead of asking for it",
        )
        command.add_argument(
            "--home", type=Path, default=Path(default), help=f"folder of the whole installation (default: {default})"
        )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = make_parser().parse_args(arguments)
    if not sys.platform.startswith("linux"):
        print(f"weft {options.action}: it runs on Linux only, as `weft up` does", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no work is left unfinished
    report, home = Report(Console(stderr=True)), Home(options.home)
    try:
        if options.action == "backup":
            wanted = options.encrypt or options.passphrase_file
            passphrase = _passphrase(options.passphrase_file, twice=True)() if wanted else None
            print(back_up(home, options.target, passphrase, report))
        else:
            archive = Archive(options.file.expanduser(), _passphrase(options.passphrase_file, twice=False))
            if options.check:
                check(archive, report)
            else:
                restore(archive, home, report)
    except HomeError as error:
        print(f"weft {options.action}: {error}", file=sys.stderr)
        return 1
    return 0


def _passphrase(file: Path | None, *, twice: bool) -> Callable[[], str]:
    def ask() -> str:
        if file is not None:
            try:
                found = (file.expanduser().read_text().splitlines() or [""])[0]
            except (OSError, UnicodeDecodeError) as error:
                raise HomeError(f"can't read the passphrase from {file}: {error}") from error
        elif sys.stdin.isatty():
            found = getpass.getpass("Passphrase of the backup: ")
            if twice and found != getpass.getpass("Once more: "):
                raise HomeError("the passphrases differ")
        else:
            raise HomeError("a passphrase is needed, and there is no terminal to ask at: give --passphrase-file FILE")
        if not found:
            raise HomeError("the passphrase is empty")
        return found

    return ask


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
