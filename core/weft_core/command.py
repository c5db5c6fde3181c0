"""The files that a manifest's command names. Nothing is run or expanded: a file that the text alone does not show is
left out."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_OPERATORS = ";&|()<>\n"
_KEYWORDS = frozenset(
    {
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "{",
        "}",
        "!",
        "[",
        "[[",
    }
)
_PYTHON = re.compile(r"(?:/\S*/)?python(?:3(?:\.\d+)?)?")
_SHELLS = frozenset(("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash"))
_STARTERS = frozenset(
    {"command", "env", "exec", "horovodrun", "mpiexec", "mpirun", "nice", "nohup", "stdbuf", "time", "timeout"}
)
"""They run the program that their arguments name."""
_MODULES_THAT_RUN_A_FILE = frozenset(("torch.distributed.run", "torch.distributed.launch"))
_HARMLESS = frozenset(
    {
        "apt",
        "apt-get",
        "date",
        "df",
        "echo",
        "export",
        "free",
        "hostname",
        "id",
        "ls",
        "mkdir",
        "nvidia-smi",
        "printf",
        "pwd",
        "set",
        "sleep",
        "true",
        "ulimit",
        "umask",
        "uname",
        "unset",
        "whoami",
    }
)
"""They make no file of a program in the folder that they run in, unless their output goes to one."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_CODE_FOLDER = re.compile(r"\$(?:MODEL_DIR|\{MODEL_DIR\})(?=/|$)")
_EXPANDED = re.compile(r"[$`*?\[\]{}~\n]|://")
_LONGEST = 1 << 16
"""Characters; a longer command is not read."""


@dataclass(frozen=True)
class Named:
    """A path that a command names, relative to the folder of the code."""

    path: str
    is_folder: bool = False
    needed: bool = False
    """The command runs this file, and nothing that runs before could have made it."""


@dataclass
class _Simple:
    """A command between two operators."""

    words: list[str]
    redirected: bool = False
    end: str = ""
    """The operator behind it."""


def named_paths(command: str) -> list[Named]:
    """Every relative path that ``command`` may mean, in its order."""
    found: list[Named] = []
    folder, sure = "", True
    for simple in _simple_commands(command) if len(command) <= _LONGEST else ():
        words = _without_assignments(simple.words)
        if not words:
            continue
        if words[0] in _KEYWORDS:
            sure = False
        if words[0] in ("cd", "pushd", "popd"):
            entered = _relative(folder, words[1]) if len(words) == 2 and words[0] != "popd" else None
            if entered is None:
                break  # anywhere
            found.append(Named(entered, is_folder=True))
            folder = entered
            continue
        program = _program(words)
        for word in dict.fromkeys(piece for text in words for piece in _pieces(text)):
            path = _relative(folder, word)
            if path:
                needed = sure and word == program and simple.end != "||"
                found.append(Named(path, needed=needed))
        sure = sure and _makes_no_files(words) and not simple.redirected
    return found


def needed_files(command: str) -> list[str]:
    """The files of the code that ``command`` certainly can't do without."""
    return list(dict.fromkeys(path.path for path in named_paths(command) if path.needed))


def _simple_commands(command: str) -> Iterator[_Simple]:
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    simple, comment = _Simple([]), False
    try:
        for token in lexer:
            operator = not token.strip(_OPERATORS) and token != ""
            if comment and not (operator and "\n" in token):
                continue
            comment = not operator and token.startswith("#")
            if comment:
                continue
            if not operator:
                simple.words.append(token)
            elif "(" in token or "<<" in token:
                break  # a subshell, a substitution, a document: what follows may be anything
            elif "<" in token or ">" in token:
                simple.redirected = True
            else:
                simple.end = token.strip("\n") or ";"
                yield simple
                simple = _Simple([])
    except ValueError:  # an open quotation
        return
    yield simple


def _without_assignments(words: Sequence[str]) -> list[str]:
    count = 0
    while count < len(words) and _ASSIGNMENT.match(words[count]):
        count += 1
    return list(words[count:])


def _pieces(word: str) -> Iterator[str]:
    """The word, or what an option is set to. A module's name stands for its files."""
    value = word.partition("=")[2] if "=" in word else word
    if value and not value.startswith("-"):
        yield value
        if "." in value and re.fullmatch(r"[\w.-]+", value) and not value.endswith((".py", ".sh")):
            path = value.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py")


def _relative(folder: str, word: str) -> str | None:
    """``word`` as a path from the code's folder, '' for that folder itself; None: it is elsewhere, or no plain path."""
    own = _CODE_FOLDER.match(word)
    if own:
        folder, word = "", word[own.end() :].lstrip("/") or "."
    if not word or len(word) > 1000 or word.startswith(("/", "-")) or _EXPANDED.search(word):
        return None
    path = posixpath.normpath(posixpath.join(folder, word))
    return None if path.startswith("..") else "" if path == "." else path


def _program(words: Sequence[str]) -> str | None:
    """The file that the command runs, if it is a script or a program in a folder."""
    first = words[0]
    if first in _STARTERS:
        inner = (number for number, word in enumerate(words) if number and _runs_a_file(word))
        start = next(inner, None)
        return None if start is None else _program(words[start:])
    if _PYTHON.fullmatch(first):
        return _script_of_python(words[1:])
    if first in _SHELLS:
        return _script_of_shell(words[1:])
    if first == "torchrun":
        return _first_script(words[1:])
    return first if "/" in first else None


def _runs_a_file(word: str) -> bool:
    return bool(_PYTHON.fullmatch(word)) or word in _SHELLS or word == "torchrun" or word.startswith("./")


def _script_of_python(words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word if word.endswith(".py") else None
        if word in ("-X", "-W"):
            next(rest, None)
        elif word == "-m":
            return _first_script(list(rest)) if next(rest, "") in _MODULES_THAT_RUN_A_FILE else None
        elif word == "-" or (not word.startswith("--") and set(word) & set("cm")):
            return None
    return None


def _script_of_shell(words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith(("-", "+")):
            return word if word.endswith(".sh") or "/" in word else None
        if word in ("-o", "+o", "-O", "+O"):
            next(rest, None)
        elif word == "-" or (not word.startswith("--") and set(word) & set("cs")):
            return None
    return None


def _first_script(words: Sequence[str]) -> str | None:
    return next((word for word in words if word.endswith(".py") and not word.startswith("-")), None)


def _makes_no_files(words: Sequence[str]) -> bool:
    if words[0] in _HARMLESS:
        return True
    start = 3 if _PYTHON.fullmatch(words[0]) and list(words[1:3]) == ["-m", "pip"] else 1
    pip = start == 3 or words[0] in ("pip", "pip3")
    options = {"-e", "--editable", "-t", "--target", "--src", "--root", "--prefix"}
    return pip and list(words[start : start + 1]) == ["install"] and not options & set(words)
