"""Advice after a job that did not complete. To resume it unchanged helps only if the next attempt may differ."""

from __future__ import annotations

import re
import shlex

from weft.resources.jobs import Job

_NEVER_FITS, _BAD_IMAGE = "S100", "S103"
_MODULE = re.compile(r"^\s*(?:\w+ ?[:|] ?)*ModuleNotFoundError: No module named '?([\w.]+)", re.MULTILINE)
_PACKAGE = re.compile(r"`framework: \{packages: \[\"?([\w.-]+(?:\[[\w,-]+\])?)\"?\](, index: )?")
_FRAMEWORK = re.compile(r"`framework: \{name: (\w+)\}`")
"""The agent's hints (weft_trainer.program.hints)."""
_CONFLICT = re.compile(r"^packages: .*Asked for by (framework\.packages)?", re.DOTALL)
"""The build of the packages names what it can't install (weft_trainer.packages)."""
_CODE = re.compile(
    r"^\s*(?:\w+ ?[:|] ?)*(ImportError|SyntaxError|IndentationError|TabError|NameError|UnboundLocalError)\b",
    re.MULTILINE,
)
_NO_FILE = re.compile(r"can't open file|command not (?:found|executable)")
_MEMORY = re.compile(r"was killed: out of memory|probably out of memory")

Advice = list[tuple[str, str]]
"""Pairs of an action and its command, which may be incomplete."""


def advice(job: Job) -> Advice:
    """The next steps for the user, the most helpful first. They depend on the error code and the reason."""
    rerun, resume = f"weft rerun {job.id}", f"weft resume {job.id}"
    if job.state != "FAILED":
        return [("continue", resume)]
    if job.error_code == _NEVER_FITS:
        return [("available", f"weft engines {job.engine}"), ("ask for less", f"{rerun} --set KEY=VALUE")]
    if job.error_code == _BAD_IMAGE:
        return [
            ("images", f"weft images list --framework {job.framework.name}"),
            ("another image", f"{rerun} --set framework.version=VERSION"),
            ("try again", resume),
        ]
    if _MEMORY.search(job.reason):
        return [("more memory", f"{rerun} --set memory=SIZE"), ("from the last checkpoint", "… --from-checkpoint")]
    if found := _CONFLICT.search(job.reason):
        return [("change the packages", f"{rerun} {'--set framework.packages=PACKAGE' if found[1] else '--code DIR'}")]
    if found := _PACKAGE.search(job.reason):
        index = " --set framework.index.url=URL" if found[2] else ""
        return [(f"add {found[1]}", f"{rerun} --with {shlex.quote(found[1])}{index}")]
    if found := _FRAMEWORK.search(job.reason):
        return [(f"use the image of {found[1]}", f"{rerun} --set framework.name={found[1]}")]
    if found := _MODULE.search(job.reason):
        module = found[1].partition(".")[0]
        return [
            (f"add {module} to the code", f"{rerun} --code DIR"),
            ("or the package that has it", f"{rerun} --with PACKAGE"),
        ]
    if _CODE.search(job.reason):
        return [("change the code", f"{rerun} --code DIR")]
    if _NO_FILE.search(job.reason):
        return [
            ("change the command", f"{rerun} --set framework.command=COMMAND"),
            ("or the code", f"{rerun} --code DIR"),
        ]
    return [("continue", resume)]
