"""The environment of the user's program: FfDL's names, and nothing of the agent's secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from weft_trainer.config import RUNTIME, STUB, TOKEN_VARIABLE, URL_VARIABLE
from weft_trainer.folders import Folders
from weft_trainer.metrics.logging import FILE_VARIABLE
from weft_trainer.program import collectives, profiling
from weft_trainer.program.hub import hub_defaults
from weft_trainer.program.venv import Venv
from weft_trainer.spec import LearnerSpec

_ROOMY = 1 << 30
"""Bytes of a learner's memory from which on its program keeps freed memory."""


def build_environment(
    spec: LearnerSpec, folders: Folders, agent: Mapping[str, str], venv: Venv | None = None
) -> dict[str, str]:
    """The agent's own environment, then the manifest's env and secrets, then Weft's own names.

    Args:
        venv: the job's own virtual environment; None: the program runs in the image's.
    """
    # An engine may run the agent inside a Ray cluster of its own, which the program must not see.
    env = {name: value for name, value in agent.items() if name != TOKEN_VARIABLE and not name.startswith("RAY_")}
    env["RAY_ADDRESS"] = "local"  # or `ray.init()` would find it by itself, through a file in /tmp
    env.setdefault("PYTHONUNBUFFERED", "1")  # or lines would wait in a buffer of 8 KiB for as long as they like
    env |= spec.env
    if not env.keys() & {"WANDB_MODE", "WANDB_API_KEY"}:
        env["WANDB_MODE"] = "offline"  # or Weights & Biases would ask for a key, which nobody can type
    # MLflow's telemetry changes os.environ in a thread while others read it to send a batch, which is then lost.
    env.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    programs = [venv.bin] if venv else []
    env["PATH"] = _path(*programs, Path(sys.executable).parent, env.get("PATH", os.defpath))
    if venv:
        env["VIRTUAL_ENV"] = str(venv.folder)
    env["PYTHONPATH"] = _path(folders.model, RUNTIME, spec.env.get("PYTHONPATH") or _of_image(agent), STUB)
    env |= {
        "DATA_DIR": str(folders.data),
        "RESULT_DIR": str(folders.result),
        "RESULT_BUCKET_DIR": str(folders.result_bucket),
        "MODEL_DIR": str(folders.model),
        "CHECKPOINT_DIR": str(folders.checkpoint),
        "LOG_DIR": str(folders.log),
        "JOB_STATE_DIR": str(folders.job_state),
        "LEARNER_ID": str(spec.learner_id),
        "NUM_LEARNERS": str(spec.learners),
        "GPU_COUNT": str(spec.gpus),
        "TRAINING_ID": spec.job_id,
        "TRAINING_JOB": spec.job_name,
        "TRAINING_COMMAND": spec.command,
        "WEFT_ATTEMPT": str(spec.attempt),
        "WEFT_IMAGE_PYTHON": sys.executable,
        FILE_VARIABLE: str(folders.metrics / "logged.jsonl"),
        collectives.FOLDER_VARIABLE: str(folders.collectives),
        profiling.FOLDER_VARIABLE: str(folders.profiles),
    }
    env |= _mlflow(spec, agent)
    if spec.pretrained is not None or spec.model is not None:
        env["PRETRAINED_DIR"] = str(folders.pretrained)
    if "PRETRAINED_DIR" in env:
        env |= hub_defaults(Path(env["PRETRAINED_DIR"]), env)
    if spec.model is not None:
        env["PRETRAINED_MODEL"] = spec.model.reference
    if any(source.mode == "stream" for source in spec.data):
        env["WEFT_STREAM_DIR"] = str(folders.streams)
    if spec.parameters:
        env["WEFT_PARAMETERS_FILE"] = str(folders.parameters)
    if spec.identity is not None:
        env["WEFT_ID_TOKEN_FILE"] = str(folders.identity)
    return env


def _mlflow(spec: LearnerSpec, agent: Mapping[str, str]) -> dict[str, str]:
    """The variables with which MLflow's client logs to the job; none if the manifest names another server."""
    if spec.mlflow is None or "MLFLOW_TRACKING_URI" in spec.env or URL_VARIABLE not in agent:
        return {}
    ours = {
        "MLFLOW_TRACKING_URI": agent[URL_VARIABLE].rstrip("/"),
        "MLFLOW_TRACKING_TOKEN": spec.mlflow.token,
        "MLFLOW_RUN_ID": spec.mlflow.run_id,
    }
    return {name: value for name, value in ours.items() if name not in spec.env}


def network_defaults(interface: str | None) -> dict[str, str]:
    """The interface that gangs talk over: the libraries guess wrong where a host name resolves to another interface."""
    if interface is None:
        return {}
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def device_default(spec: LearnerSpec) -> dict[str, str]:
    """Accelerate, and transformers' Trainer with it, makes no gang of processes on CPUs without its setting to use
    CPUs: each process would train alone, and say nothing. A learner's other resources may be devices that it finds
    itself."""
    return {} if spec.gpus or spec.extra else {"ACCELERATE_USE_CPU": "true"}


def thread_default(cpus: float, slots: int) -> dict[str, str]:
    """OpenMP's own default is all the machine's cores for each of several workers."""
    return {"OMP_NUM_THREADS": str(max(1, int(cpus // slots)))}


def allocation_default(memory: int | None) -> dict[str, str]:
    """Settings of glibc's malloc for a learner of ``memory`` bytes: keep freed memory, do not return it to the kernel.

    By default, each training step of TensorFlow on CPUs returns the memory of its tensors, and the next step gets it
    back page by page. That took a third of the processor time of a small network (benchmarks/README.md). A small
    learner might lack the memory that is kept.
    """
    if memory is None or memory < _ROOMY:
        return {}
    return {
        "MALLOC_TOP_PAD_": str(64 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        # The most that glibc takes. With the others alone it would be 128 KiB.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    }


def _of_image(agent: Mapping[str, str]) -> str:
    """The PYTHONPATH that an image brings, without the folder that an engine put there for the agent."""
    parts = agent.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(part for part in parts if part and Path(part) != RUNTIME)


def _path(*parts: Path | str) -> str:
    return os.pathsep.join(str(part) for part in parts if str(part))
