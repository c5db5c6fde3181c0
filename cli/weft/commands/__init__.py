"""The commands of ``weft``, and the module of each, which is loaded when it is needed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A command for the list of ``weft --help``; ``help`` is the first sentence of the command's own help."""

    module: str
    help: str
    panel: str
    group: bool = False


TRAIN, JOBS, DATA, SERVER = "Train", "Jobs", "Models, data and secrets", "Server and account"

COMMANDS: dict[str, Entry] = {
    "init": Entry("train", "Write a commented starter manifest and training script.", TRAIN),
    "validate": Entry("train", "Check a manifest without submitting it.", TRAIN),
    "train": Entry("train", "Submit a training job: a manifest or a script, and the folder or zip of its code.", TRAIN),
    "run": Entry("run", "Run a manifest or a script on this machine, without a server.", TRAIN),
    "sbatch": Entry("sbatch", "Submit a Slurm batch script, with its #SBATCH directives.", TRAIN),
    "notebook": Entry("notebook", "Start JupyterLab as a job, and open its page.", TRAIN),
    "rerun": Entry("train", "Submit a job again, with the same manifest and code.", TRAIN),
    "sweep": Entry(
        "sweep",
        "Search for the best parameters: `weft sweep MANIFEST` submits many jobs that differ in these only.",
        TRAIN,
        group=True,
    ),
    "schedule": Entry(
        "schedule",
        "Start jobs at times, and at promotions of a model: `weft schedule create MANIFEST`.",
        TRAIN,
        group=True,
    ),
    "bench": Entry(
        "bench", "Measure the speed of a training, and how it scales with the number of learners.", TRAIN, group=True
    ),
    "drill": Entry("drill", "Train a job undisturbed, then kill and halt it, and compare the two.", TRAIN),
    "list": Entry("jobs", "List jobs, newest first.", JOBS),
    "views": Entry("views", "List, show and delete saved lists of jobs.", JOBS, group=True),
    "show": Entry("jobs", "Show a job: its state and the reason for it, its attempts and its learners.", JOBS),
    "checkpoints": Entry("jobs", "List the stored checkpoints of a job, newest first.", JOBS),
    "logs": Entry("logs", "Print or search a job's log; --follow prints it as it grows.", JOBS),
    "metrics": Entry("metrics", "Show a job's metrics: newest and best values, charts, exports.", JOBS),
    "tensorboard": Entry("tensorboard", "Open TensorBoard with the event files of jobs.", JOBS),
    "loglines": Entry("ffdl", "Print log lines with numbers and times, as FfDL did; `weft logs` shows more.", JOBS),
    "emetrics": Entry(
        "ffdl", "Print evaluation metrics as they arrived, as FfDL did; `weft metrics` shows more.", JOBS
    ),
    "events": Entry("logs", "Print the events of a job.", JOBS),
    "deliveries": Entry("jobs", "List the notifications of a job, with their receivers and outcomes.", JOBS),
    "exec": Entry("inside", "Run a command in a learner of a running job.", JOBS),
    "shell": Entry("inside", "Open a shell in a learner of a running job.", JOBS),
    "cp": Entry("inside", "Copy files out of a learner of a running job, or into it.", JOBS),
    "forward": Entry("inside", "Make a port of a learner reachable on this machine.", JOBS),
    "profile": Entry("profiling", "Record where a running program spends its time.", JOBS),
    "ssh-config": Entry("ssh", "Print the lines of ~/.ssh/config with which `ssh JOB.weft` leads into a job.", JOBS),
    "ssh-proxy": Entry("ssh", "Serve SSH to the client that starts it: the ProxyCommand of `weft ssh-config`.", JOBS),
    "label": Entry("jobs", "Set and remove labels of a job.", JOBS),
    "halt": Entry("jobs", "Stop a job; it keeps its checkpoints and can be resumed.", JOBS),
    "resume": Entry("jobs", "Queue a halted or failed job again, from its last checkpoint.", JOBS),
    "delete": Entry("jobs", "Stop a job, and remove it and its logs.", JOBS),
    "files": Entry("results", "List the files of a job's results.", JOBS),
    "download": Entry("results", "Download a job's trained model, or the code it was submitted with.", JOBS),
    "models": Entry("models", "Manage the models that jobs have trained: versions, lineage, stages.", DATA, group=True),
    "data": Entry("data", "Upload, list, download and prepare data.", DATA, group=True),
    "datastores": Entry(
        "datastores", "Manage the data stores (S3) whose credentials the server keeps.", DATA, group=True
    ),
    "secrets": Entry("secrets", "Manage the secrets that manifests name and learners receive.", DATA, group=True),
    "login": Entry("account", "Sign in to a server and store the token in the profile file.", SERVER),
    "tokens": Entry("tokens", "List, create and revoke API tokens.", SERVER, group=True),
    "service-accounts": Entry(
        "service_accounts", "Manage the project's accounts for machines (owners).", SERVER, group=True
    ),
    "projects": Entry("projects", "Manage projects, their members, quotas, shares and retention.", SERVER, group=True),
    "users": Entry("users", "Manage the users of the server (administrators).", SERVER, group=True),
    "audit": Entry("audit", "List who did what, newest first (administrators, owners).", SERVER),
    "engines": Entry("engines", "Show the engines that run jobs, how busy they are, and which jobs wait.", SERVER),
    "usage": Entry("usage", "Show what users have held of the engines: CPU-hours and GPU-hours.", SERVER),
    "images": Entry("images", "List the images that jobs run in.", SERVER, group=True),
    "mcp": Entry("mcp", "Serve Weft to an agent, as an MCP server on standard input and output.", SERVER),
    "version": Entry("version", "Print the versions of this client and of the server.", SERVER),
    "up": Entry("local", "Start a complete Weft on this machine.", SERVER),
    "down": Entry("local", "Stop the Weft that runs on this machine.", SERVER),
    "status": Entry("local", "Show the status of the Weft that runs on this machine.", SERVER),
    "backup": Entry("backup", "Write all of the Weft on this machine into one file, while it runs.", SERVER),
    "restore": Entry("backup", "Make a Weft from a backup, on this machine or another one.", SERVER),
    "env": Entry(
        "local",
        "Print the environment variables of the Weft on this machine; `weft env build` builds images' environments.",
        SERVER,
    ),
}
