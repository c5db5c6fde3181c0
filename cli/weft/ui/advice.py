"""What helps after a job that did not complete. Going on as before helps only where something may be different then."""

from __future__ import annotations

import re

from weft.resources.jobs import Job

_NEVER_FITS, _BAD_IMAGE = "S100", "S103"
_MODULE = re.compile(r"^\s*(?:\w+ ?[:|] ?)*ModuleNotFoundError: No module named '?([\w.]+)", re.MULTILINE)
_CODE = re.compile(
    r"^\s*(?:\w+ ?[:|] ?)*(ImportError|SyntaxError|IndentationError|TabError|NameError|UnboundLocalError)\b",
    re.MULTILINE,
)
_NO_FILE = re.compile(r"can't open file|command not (?:found|executable)")
_MEMORY = "was killed: out of memory"

Advice = list[tuple[str, str]]
"""What to do, and the command for it (which may be none)."""


def advice(job: Job) -> Advice:
    """What the user may do next, by the failure's code and the job's last words; the most helpful first."""
    rerun, resume = f"weft rerun {job.id}", f"weft resume {job.id}"
    if job.state != "FAILED":
        return [("go on", resume)]
    if job.error_code == _NEVER_FITS:
        return [("what there is", f"weft engines {job.engine}"), ("ask for less", f"{rerun} --set KEY=VALUE")]
    if job.error_code == _BAD_IMAGE:
        return [
            ("images", f"weft images list --framework {job.framework.name}"),
            ("another image", f"{rerun} --set framework.version=VERSION"),
            ("the same again", resume),
        ]
    if _MEMORY in job.reason:
        return [("more memory", f"{rerun} --set memory=SIZE"), ("from its last checkpoint", "… --from-checkpoint")]
    if found := _MODULE.search(job.reason):
        module = found[1].partition(".")[0]
        return [
            (f"put {module} among the code", f"{rerun} --code DIR"),
            (f"or an image that has {module}", f"{rerun} --set framework.version=VERSION"),
        ]
    if _CODE.search(job.reason):
        return [("change the code", f"{rerun} --code DIR")]
    if _NO_FILE.search(job.reason):
        return [
            ("change the command", f"{rerun} --set framework.command=COMMAND"),
            ("or the code", f"{rerun} --code DIR"),
        ]
    return [("go on", resume)]
