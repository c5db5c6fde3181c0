"""``scontrol`` in a job with the launcher ``slurm``: the calls that batch scripts make."""

from __future__ import annotations

import os
import sys

from weft_trainer.launchers.slurm_hosts import expand

_FLAGS = ("-o", "--oneliner", "-d", "--details")
_ACCEPTED = "show hostnames [LIST], show hostlist LIST, show job [ID]"


def main(words: list[str]) -> None:
    sys.exit(scontrol(words))


def scontrol(words: list[str]) -> int:
    """The exit code."""
    given = [word for word in words if word not in _FLAGS]
    what, values = given[:2], given[2:]
    if what in (["show", "hostnames"], ["show", "hostname"]) and len(values) < 2:
        return _show_names(values[0] if values else os.environ.get("SLURM_JOB_NODELIST", ""))
    if what == ["show", "hostlist"] and len(values) == 1:
        print(values[0])  # a list of names is a list in Slurm's notation, too
    elif what == ["show", "job"] and len(values) < 2:
        own = os.environ.get("SLURM_JOB_ID", "")
        if values and values[0] != own:
            return _complain(f"job {values[0]} is not this job, {own}; `weft show` knows all jobs")
        print((" " if {"-o", "--oneliner"} & {*words} else "\n   ").join(_job()))
    elif what[:1] == ["requeue"]:
        return _complain("a job does not requeue itself on Weft: `retries` in the manifest starts it again")
    else:
        return _complain(f"{' '.join(words) or 'no command'}: accepted is {_ACCEPTED}")
    return 0


def _show_names(hosts: str) -> int:
    try:
        print("\n".join(expand(hosts)))
    except ValueError as error:
        return _complain(str(error))
    return 0


def _job() -> list[str]:
    names = {
        "JobId": "SLURM_JOB_ID",
        "JobName": "SLURM_JOB_NAME",
        "ArrayJobId": "SLURM_ARRAY_JOB_ID",
        "ArrayTaskId": "SLURM_ARRAY_TASK_ID",
        "Restarts": "SLURM_RESTART_COUNT",
        "BatchHost": "SLURM_SUBMIT_HOST",
        "NodeList": "SLURM_JOB_NODELIST",
        "NumNodes": "SLURM_JOB_NUM_NODES",
        "NumTasks": "SLURM_NTASKS",
        "WorkDir": "SLURM_SUBMIT_DIR",
    }
    found = [f"{key}={os.environ[name]}" for key, name in names.items() if os.environ.get(name)]
    return [*found, "JobState=RUNNING"]


def _complain(text: str) -> int:
    print(f"scontrol: error: {text}", file=sys.stderr)
    return 1
