"""``weft`` reports errors by exit code and message; its help and its documentation list every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import DROP, Answer, Double, as_json, problem

from weft.commands import COMMANDS
from weft.exits import MEANINGS
from weft.main import load


@pytest.mark.parametrize(
    ("answer", "code_"),
    [
        (problem(401, "unauthenticated"), 5),
        (problem(403, "forbidden"), 5),
        (problem(404, "not_found"), 4),
        (problem(409, "conflict"), 1),
        (problem(500, "internal"), 1),
        (problem(503, "database_unavailable"), 6),
        (DROP, 6),
    ],
)
def test_exit_codes(double: Double, weft: Weft, answer: Answer, code_: int) -> None:
    double.on("GET", "engines", answer)
    done = weft("engines")
    assert (done.code, done.out) == (code_, "")
    assert done.err.startswith("weft: error: ")


def test_a_fault_of_our_own_is_one_line(double: Double, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    double.on("GET", "engines", as_json({"engines": [{}]}))
    done = weft("engines")
    assert done.code == 1
    assert done.err.startswith("weft: error: KeyError")
    assert len(done.err.splitlines()) == 1
    monkeypatch.setenv("WEFT_DEBUG", "1")
    with pytest.raises(KeyError):
        weft("engines")


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    for name, entry in COMMANDS.items():
        command = load(name, entry)
        assert command.help is not None, name
        assert command.help.partition("\n\n")[0].replace("\n", " ") == entry.help, name


def test_help_tells_every_command_and_exit_code_and_imports_no_http() -> None:
    script = (
        "import sys; from weft.main import main; code = main(['--help'])\n"
        "print(sorted({'httpx', 'yaml', 'pathspec', 'weft.client'} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
    for name in COMMANDS:
        assert f" {name} " in done.stdout
    for code, meaning in MEANINGS:
        assert f"{code.value}  {meaning}" in done.stdout


def test_the_documentation_lists_every_command_and_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"`weft {name}" in text, name
    for code, meaning in MEANINGS:
        assert f"| {code.value} | {meaning} |" in text, code


def test_every_command_has_its_help(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.execv", lambda program, arguments: None)  # up and its kin have a parser of their own

    def check(command: Any, *words: str) -> None:
        done = weft(*words, "--help")
        assert (done.code, done.err) == (0, ""), words
        for name, child in getattr(command, "commands", {}).items():
            check(child, *words, name)

    for name, entry in COMMANDS.items():
        check(load(name, entry), name)
