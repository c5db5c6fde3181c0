"""A project as a busy team leaves it: jobs with long names and four labels, failures with coloured tracebacks, thirty
metrics. The API alone makes it, by the calls that users and agents make; only times and users are moved in the
database."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml
from sqlalchemy import text
from tests.api.conftest import Agent, Api, Attempted, Person, zipped

from weft_core.lifecycle.failures import with_log
from weft_core.objects import results_prefix
from weft_core.store.models import EngineStatus

GIB = 1 << 30
_NAMES = (
    "llama-3.1-8b-qlora-r64-openorca-lr2e-4-warmup300-seed1337",
    "vit-large-patch16-224-in21k-cifar100-mixup0.8-epochs300",
    "resnet50-imagenet-baseline",
    "whisper-small-de-common-voice-17",
    "mnist",
    "bert-base-uncased-squad-v2-max-length-384-stride-128",
    "unet-brats-2021-t1ce-t2-flair-patch128-dice-focal",
    "diffusion-celebahq-256-ema0.9999-linear-schedule",
)
_DATA = ("openorca", "cifar100", "imagenet-1k", "common-voice", "mnist", "squad", "brats", "celebahq")
_REASONS = {
    "QUEUED": "waiting for 4 GPUs on gpu: 3 of 16 are free; 2 jobs are before it",
    "PENDING": "2 of 4 learners run; the image is being pulled on gpu-node-07",
    "DOWNLOADING": "learner 1 brings 41.2 GiB of data: 12.7 GiB are there",
    "PROCESSING": "user code runs in all learners",
    "STORING": "learner 1 stores 3.4 GiB of results",
    "COMPLETED": "completed",
    "HALTED": "halted by its user; its last checkpoint is 4 m old",
}
_STATES = (
    "PROCESSING PROCESSING DOWNLOADING STORING PROCESSING PENDING QUEUED QUEUED QUEUED QUEUED "
    "FAILED COMPLETED COMPLETED HALTED FAILED COMPLETED COMPLETED COMPLETED FAILED "
    + 9 * "COMPLETED "
    + "FAILED COMPLETED HALTED "
    + 6 * "COMPLETED "
    + "FAILED COMPLETED COMPLETED"
).split()
_PATHS = {
    "PENDING": ["PENDING"],
    "DOWNLOADING": ["PENDING", "DOWNLOADING"],
    "PROCESSING": ["PENDING", "DOWNLOADING", "PROCESSING"],
    "STORING": ["PENDING", "DOWNLOADING", "PROCESSING", "STORING"],
    "COMPLETED": ["PENDING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"],
    "HALTED": ["PENDING", "DOWNLOADING", "PROCESSING", "HALTED"],
    "FAILED": ["PENDING", "DOWNLOADING", "PROCESSING", "STORING", "FAILED"],
}
TRACEBACK = (
    "\x1b[31m╭─────────── Traceback (most recent call last) ───────────╮\x1b[0m",
    "Traceback (most recent call last):",
    '  File \x1b[35m"/job/train.py"\x1b[0m, line \x1b[35m211\x1b[0m, in \x1b[35m<module>\x1b[0m',
    "    main(parse_arguments())",
    '  File \x1b[35m"/job/train.py"\x1b[0m, line \x1b[35m184\x1b[0m, in \x1b[35mmain\x1b[0m',
    "    loss = step(model, batch, scaler)",
    "           \x1b[31m~~~~\x1b[0m\x1b[1;31m^^^^^^^^^^^^^^^^^^^^^^\x1b[0m",
    '  File \x1b[35m"/job/model.py"\x1b[0m, line \x1b[35m97\x1b[0m, in \x1b[35mforward\x1b[0m',
    "    attention = query @ key.transpose(-2, -1) / math.sqrt(self.head_size)",
    "\x1b[1;35mtorch.OutOfMemoryError\x1b[0m: \x1b[35mCUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
    "a total capacity of 79.10 GiB of which 1.31 GiB is free.\x1b[0m",
)
TRAIN = '''\
"""Finetunes a language model."""

import argparse
import math

import torch
from weft_trainer import log_metrics


def main(arguments: argparse.Namespace) -> None:
    model = build(arguments.model).cuda()
    for step, batch in enumerate(loader(arguments.data)):
        loss = step(model, batch)
        log_metrics(step=step, loss=loss.item())
'''


@dataclass(frozen=True)
class Team:
    """The jobs that pages are looked at with, by their ids."""

    jobs: Sequence[str]
    running: str
    """Two learners, thirty metrics, a log of some thousand lines."""
    failed: str
    """Three attempts, each with a coloured traceback."""
    compared: Sequence[str]


def _manifest(n: int, state: str) -> str:
    kind = n % len(_NAMES)
    gpus = (4, 1, 8, 0, 0, 2, 4, 8)[kind]
    learners = 2 if n == 0 else (2, 1, 4, 1, 1, 1, 2, 1)[kind]
    said: dict[str, Any] = {
        "name": _NAMES[kind] if n < len(_NAMES) else f"{_NAMES[kind]}-{n}",
        "description": "Baseline of the autumn: the same schedule as before with twice the batch.",
        "labels": {"team": ("nlp", "vision", "speech")[n % 3], "data": _DATA[kind], "stage": "research", "run": f"{n}"},
        "engine": "gpu" if gpus else "local",
        "learners": learners,
        "cpus": 8,
        "memory": "64 GiB",
        "retries": 2 if state == "FAILED" and n == 10 else 0,
        "framework": {"name": "pytorch", "command": f"python train.py --lr {_rate(n)} --batch {32 << n % 3}"},
    }
    if gpus:
        said |= {"gpus": gpus}
    if n in _REGISTERED:
        said |= {"data_stores": [{"training_results": {"model": MODEL}}]}
    return yaml.safe_dump(said)


MODEL = "image-classifier"
_REGISTERED = (11, 15)
"""Jobs whose results are versions of the model."""


def _rate(n: int) -> str:
    return ("2e-4", "1e-3", "3e-4", "5e-5")[n % 4]


def _records(n: int, steps: int, names: Sequence[str], start: float) -> list[dict[str, Any]]:
    source = random.Random(n)
    found = []
    for step in range(0, steps, max(1, steps // 120)):
        share = step / steps
        values = {}
        for name in names:
            level = 2.3 * math.exp(-4 * share) + 0.1 + 0.02 * (n % 7) + source.random() * 0.08
            values[name] = 1 - level / 3 if "acc" in name or "f1" in name else level
        t = int((start + step * 2.1) * 1000)
        by_group: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            group, _, own = name.rpartition("/")
            by_group.setdefault(group, {})[own] = value
        found += [
            {"t": t, "kind": "user", "group": group, "etimes": {"iteration": step}, "values": own}
            for group, own in by_group.items()
        ]
    return found


def _system(n: int, seconds: int, start: float) -> list[dict[str, Any]]:
    source = random.Random(n)
    return [
        {
            "t": int((start + at) * 1000),
            "kind": "system",
            "group": "system",
            "etimes": {},
            "values": {
                "cpu_percent": 310 + 60 * source.random(),
                "memory_bytes": (22 + 3 * source.random()) * GIB,
                "memory_limit_bytes": 64 * GIB,
                **{f"gpu{gpu}_percent": (91 if gpu else 34) + 6 * source.random() for gpu in range(4)},
                **{f"gpu{gpu}_memory_bytes": (61 + source.random()) * GIB for gpu in range(4)},
                "net_in_bytes_per_s": 31e6 * source.random(),
                "disk_read_bytes_per_s": 120e6 * source.random(),
            },
        }
        for at in range(0, seconds, max(10, seconds // 200))
    ]


_MANY = [
    *(f"train/{name}" for name in ("loss", "accuracy", "lr", "grad_norm", "tokens_per_s", "epoch")),
    *(f"val/{name}" for name in ("loss", "accuracy", "f1", "perplexity")),
    *(f"layers/attention_{n}_norm" for n in range(12)),
    *(f"eval/mmlu_{name}_acc" for name in ("law", "physics", "history", "biology")),
    "loss",
    "throughput",
    "gpu_hours",
]
_FEW = ("train/loss", "val/loss", "val/accuracy")


def _send(agent: Agent, records: list[dict[str, Any]]) -> None:
    for sequence, first in enumerate(range(0, len(records), 500)):
        answer = agent.post("metrics", sequence=sequence, records=records[first : first + 500])
        assert answer.status_code == 204, answer.text


def _batches(lines: list[str]) -> list[list[str]]:
    return [lines[first : first + 1000] for first in range(0, len(lines), 1000)]


def _log_lines(count: int) -> list[str]:
    lines = [
        "\x1b[1mweft\x1b[0m 2 learners, 4 GPUs each",
        "\x1b[33mWARNING\x1b[0m  tokenizer: no pad token; using </s>",
    ]
    for step in range(count):
        if step % 97 == 96:
            lines.append(f"\x1b[32mINFO\x1b[0m     checkpoint after step {step}: 3.4 GiB in 12.1 s")
        if step % 211 == 210:
            lines.append(f"\x1b[31mERROR\x1b[0m    worker 3: bad sample {step}, skipped")
        lines.append(f"\x1b[36mstep {step:6d}\x1b[0m  loss {2.3 * math.exp(-step / 900):.4f}  lr 1.98e-04  412 ms")
    return lines


def _fail(api: Api, attempt: Attempted, outcome: str, reason: str, lines: int) -> str:
    """The program's end, after so many lines of the log; returns the job's reason."""
    attempt.agents[0].log(len(_batches(_log_lines(lines))), *TRACEBACK, t=1_769_857_309_000)
    reason = with_log(reason, list(TRACEBACK))
    with api.context.database.transaction() as session:
        session.execute(
            text(
                "update attempts set ended_at = now(), outcome = :outcome, reason = :reason, exit_code = 1"
                " where id = :id"
            ),
            {"outcome": outcome, "reason": reason, "id": attempt.id},
        )
        session.execute(
            text(
                "update learners set phase = 'EXITED', exit_code = 1, exit_reason = 'exit code 1', last_lines = :lines"
                " where attempt_id = :id"
            ),
            {"lines": "\n".join(TRACEBACK), "id": attempt.id},
        )
        session.execute(text("update jobs set failures = failures + 1 where id = :id"), {"id": attempt.job_id})
    return reason


def fill(api: Api, owner: Person, *, jobs: int = 40, lines: int = 4000) -> Team:
    """Submit the jobs and let agents and workers do to them what they would do."""
    others = [api.person("editor", owner.project_id) for _ in range(3)]
    sha = _upload(owner)
    made: list[str] = []
    now = datetime.now(UTC)
    for n, state in reversed(list(enumerate(_STATES[:jobs]))):
        person = [owner, *others][n % 4]
        made.append(person.submit(_manifest(n, state), code_sha256=sha)["id"])
        _live(api, owner, made[-1], n, state, lines if n == 0 else 300)
        _date(api, made[-1], now - timedelta(minutes=3 + 47 * n), state, n)
    made.reverse()
    _engines(api, now)
    done = [made[n] for n, state in enumerate(_STATES[:jobs]) if state == "COMPLETED"]
    return Team(made, made[0], made[10], done[:3])


def _upload(person: Person) -> str:
    code = zipped(train__py=TRAIN, README__md="# Finetuning\n")
    sha = hashlib.sha256(code).hexdigest()
    answer = person.http.put(f"/api/v1/code/{sha}", content=code)
    assert answer.is_success, answer.text
    return sha


def _live(api: Api, owner: Person, job: str, n: int, state: str, lines: int) -> None:
    begun = datetime.now(UTC).timestamp() - 60 * (3 + 47 * n)
    if state == "QUEUED":
        with api.context.database.transaction() as session:
            session.execute(text("update jobs set reason = :r where id = :id"), {"r": _REASONS[state], "id": job})
        return
    if state == "FAILED" and n == 10:
        for _ in range(2):
            attempt = api.attempt(job)
            _walk(api, attempt, ["PENDING", "DOWNLOADING", "PROCESSING"], lines)
            reason = _fail(api, attempt, "FAILED", "learner 1: exit code 1", lines)
            api.set_state(job, "QUEUED", f"retry after: {reason}")
    attempt = api.attempt(job)
    for name, data in (("summary.json", b'{"accuracy": 0.93}'), ("model/weights.bin", bytes(4096))):
        if n in _REGISTERED:
            api.context.objects.put(results_prefix(owner.project_id, job) + name, data)
    path = _PATHS[state]
    before = path[:-1] if state in ("FAILED", "COMPLETED", "HALTED") else path
    _walk(api, attempt, before, lines)
    names = _MANY if n == 0 else _FEW
    for agent in attempt.agents if n == 0 else attempt.agents[:1]:
        if state not in ("PENDING", "DOWNLOADING"):
            _send(agent, _records(n, 4800, names, begun) + _system(n, 9000 if n == 0 else 900, begun))
    if state == "FAILED":
        api.set_state(job, "FAILED", _fail(api, attempt, "FAILED", "learner 1: exit code 1", lines))
    elif state in ("COMPLETED", "HALTED"):
        api.set_attempt(attempt, ended_at=datetime.now(UTC), outcome="SUCCEEDED" if state == "COMPLETED" else "HALTED")
        api.set_state(job, state, _REASONS[state])


def _walk(api: Api, attempt: Attempted, path: Sequence[str], lines: int) -> None:
    for state in path:
        api.set_state(attempt.job_id, state, _REASONS[state])
        if state == "DOWNLOADING":
            for agent in attempt.agents:
                agent.start()
        if state == "PROCESSING":
            printed = _batches(_log_lines(lines))
            for rank, agent in enumerate(attempt.agents[:2]):
                for sequence, batch in enumerate(printed):
                    agent.log(sequence, *batch, t=1_769_847_309_000 + 60_000 * sequence + rank)
    with api.context.database.transaction() as session:
        session.execute(
            text(
                "update learners set node = 'gpu-node-0' || (rank + 3), address = '10.4.2.' || (17 + rank),"
                " phase = case when phase = 'WAITING' then 'PROCESSING' else phase end where attempt_id = :id"
            ),
            {"id": attempt.id},
        )


def _date(api: Api, job: str, created: datetime, state: str, n: int) -> None:
    """Move the job's life to where it would have been."""
    length = timedelta(minutes=40 + 13 * (n % 9))
    with api.context.database.transaction() as session:
        session.execute(
            text(
                "update jobs set created_at = cast(:at as timestamptz),"
                " state_since = case when ended_at is null then cast(:at as timestamptz) + interval '2 min'"
                " else :end end,"
                " started_at = case when started_at is null then null"
                " else cast(:at as timestamptz) + interval '90 s' end,"
                " ended_at = case when ended_at is null then null else cast(:end as timestamptz) end where id = :id"
            ),
            {"at": created, "end": created + length, "id": job},
        )
        for table in ("job_texts", "job_labels"):
            session.execute(
                text(f"update {table} set created_at = :at where job_id = :id"),
                {"at": created, "id": job},
            )
        # The events as far apart as the states of such a job are.
        session.execute(
            text(
                "update events set created_at = cast(:at as timestamptz) + place * :each from"
                " (select id as own, row_number() over (order by id) - 1 as place from events where job_id = :id) as o"
                " where own = events.id"
            ),
            {"at": created, "id": job, "each": length / 6 if state in _PATHS else length},
        )
        session.execute(
            text(
                'insert into mlflow_runs (id, project_id, job_id, experiment_id, "user", status, start_time, params)'
                " select id, project_id, id, md5(name), 'ann', 'FINISHED', 0,"
                " jsonb_build_object('lr', jsonb_build_array(cast(:lr as text), 1, 0),"
                " 'batch', jsonb_build_array(cast(:batch as text), 1, 0)) from jobs where id = :id"
            ),
            {"lr": _rate(n), "batch": str(32 << n % 3), "id": job},
        )


def _engines(api: Api, now: datetime) -> None:
    nodes: list[dict[str, Any]] = [
        {
            "name": f"gpu-node-0{at}",
            "cpus": 96,
            "gpus": 8,
            "memory": 1024 * GIB,
            "gpu_type": "a100",
            "busy": {"cpus": 40.5 + at, "memory": 300 * GIB, "gpus": 8 - at % 3},
        }
        for at in range(3, 7)
    ]
    with api.context.database.transaction() as session:
        here: list[dict[str, Any]] = [{"name": "here", "cpus": 16, "gpus": 0, "memory": 64 * GIB}]
        for name, kind, own in (("gpu", "kubernetes", nodes), ("local", "local", here)):
            session.execute(text("delete from engines where name = :name"), {"name": name})
            total = {key: sum(node[key] for node in own) for key in ("cpus", "gpus", "memory")}
            session.add(EngineStatus(name=name, type=kind, seen_at=now, capacity={**total, "nodes": own}))
