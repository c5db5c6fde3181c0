"""The commands of ``weft``: which there are, and the module of each, which is loaded when it is needed."""

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
    "validate": Entry("train", "Check a manifest, without submitting it.", TRAIN),
    "train": Entry("train", "Submit a training job: a manifest, and the folder or zip of its code.", TRAIN),
    "run": Entry("run", "Run a manifest on this machine, without any server.", TRAIN),
    "rerun": Entry("train", "Submit a job again, with the same manifest and code.", TRAIN),
    "bench": Entry("bench", "Measure how fast a training is, and how it scales with its learners.", TRAIN, group=True),
    "list": Entry("jobs", "List jobs, newest first.", JOBS),
    "show": Entry("jobs", "Show a job: state and reason, attempts, learners.", JOBS),
    "checkpoints": Entry("jobs", "List the checkpoints that are kept of a job, newest first.", JOBS),
    "logs": Entry("logs", "Print or search a job's log; with --follow as it grows.", JOBS),
    "metrics": Entry("metrics", "Show what a job measures: newest and best values, charts, exports.", JOBS),
    "tensorboard": Entry("tensorboard", "Open TensorBoard on the event files of jobs.", JOBS),
    "loglines": Entry("ffdl", "Print log lines with number and time, as FfDL did; `weft logs` shows more.", JOBS),
    "emetrics": Entry("ffdl", "Print evaluation metrics as they came, as FfDL did; `weft metrics` shows more.", JOBS),
    "events": Entry("logs", "Print what has happened to a job.", JOBS),
    "halt": Entry("jobs", "Stop a job; it keeps its checkpoints and can be resumed.", JOBS),
    "resume": Entry("jobs", "Queue a halted or failed job again, from its last checkpoint.", JOBS),
    "delete": Entry("jobs", "Stop a job and remove it with its logs.", JOBS),
    "files": Entry("results", "List the files among a job's results.", JOBS),
    "download": Entry("results", "Download a job's trained model, or the code it was submitted with.", JOBS),
    "models": Entry("models", "Models that jobs have trained: versions, lineage, stages.", DATA, group=True),
    "data": Entry("data", "Put data into a data store, list it, get it.", DATA, group=True),
    "datastores": Entry("datastores", "Data stores (S3) that the server keeps the credentials of.", DATA, group=True),
    "secrets": Entry("secrets", "Secrets that manifests name and learners get.", DATA, group=True),
    "login": Entry("account", "Sign in at a server and keep the token in the profile file.", SERVER),
    "tokens": Entry("tokens", "API tokens: list, create, revoke.", SERVER, group=True),
    "projects": Entry("projects", "Projects: members and quotas.", SERVER, group=True),
    "users": Entry("users", "Users of the server, for its administrators.", SERVER, group=True),
    "engines": Entry("engines", "Show where jobs can run, how busy it is there, and what waits.", SERVER),
    "images": Entry("images", "Images that jobs run in.", SERVER, group=True),
    "version": Entry("version", "Print the versions of this client and of the server.", SERVER),
    "up": Entry("local", "Start a whole Weft on this machine.", SERVER),
    "down": Entry("local", "Stop the Weft that runs on this machine.", SERVER),
    "status": Entry("local", "Show the Weft that runs on this machine.", SERVER),
    "env": Entry(
        "local",
        "Print the environment of the Weft that runs on this machine; `weft env build IMAGE…` builds learners' own.",
        SERVER,
    ),
}
