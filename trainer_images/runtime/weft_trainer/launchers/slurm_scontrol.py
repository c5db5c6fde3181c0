"""``scontrol`` in a job with the launcher ``slurm``: what batch scripts ask it for."""

from __future__ import annotations

import os
import sys

from weft_trainer.launchers.slurm_hosts import expand

_ACCEPTED = "show hostnames [LIST], show hostlist LIST, show job [ID]"


def main(words: list[str]) -> None:
    sys.exit(scontrol(words))


def scontrol(words: list[str]) -> int:
    """The exit code."""
    left = [word for word in words if word not in ("-o", "--oneliner", "-d", "--details")]
    match left:
        case ["show", "hostnames" | "hostname", *lists] if len(lists) < 2:
            hosts = lists[0] if lists else os.environ.get("SLURM_JOB_NODELIST", "")
            try:
                print("\n".join(expand(hosts)))
            except ValueError as error:
                return _complain(str(error))
        case ["show", "hostlist", hosts]:
            print(hosts)  # a list of names is a list in Slurm's notation, too
        case ["show", "job" | "jobs" | "jobid", *ids] if len(ids) < 2:
            own = os.environ.get("SLURM_JOB_ID", "")
            if ids and ids[0] != own:
                return _complain(f"job {ids[0]} is not this job, {own}; `weft show` knows all jobs")
            print((" " if {"-o", "--oneliner"} & {*words} else "\n   ").join(_job()))
        case ["requeue", *_]:
            return _complain("a job does not requeue itself on Weft: `retries` in the manifest starts it again")
        case _:
            return _complain(f"{' '.join(words) or 'no command'}: accepted is {_ACCEPTED}")
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
    return [*found[:2], "JobState=RUNNING", *found[2:]]


def _complain(text: str) -> int:
    print(f"scontrol: error: {text}", file=sys.stderr)
    return 1
