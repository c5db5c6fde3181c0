"""``weft engines`` shows the health and load of each engine, its nodes, and the jobs that wait for it."""

from __future__ import annotations

import json

from tests.cli.conftest import Weft
from tests.cli.double import Double, as_json, problem
from tests.cli.engines import AWAY, CLUSTER, CLUSTER_NODES, LOCAL, QUEUE

from weft.exits import ExitCode


def test_engines_with_their_health_and_load(double: Double, weft: Weft) -> None:
    double.on("GET", "engines", as_json({"engines": [LOCAL, CLUSTER, AWAY, {"name": "old", "type": "local"}]}))
    head, *rows = weft("engines").out.splitlines()
    assert head.split() == ["ENGINE", "TYPE", "HEALTH", "CPUS", "GPUS", "MEMORY", "NODES", "RUNNING", "QUEUED"]
    assert rows[0].split() == ["local", "(default)", "local", "up", "2/8", "–", "512M/1G", "1", "4", "3"]
    assert rows[1].split() == ["gpu", "kubernetes", "up", "51.2/192", "7/16", "260G/1.5T", "1/2+1", "2", "31"]
    assert rows[2].split() == ["ray", "ray", "no", "answer", "–", "–", "–", "–", "0", "1"]
    assert rows[3].split()[:3] == ["old", "local", "–"], "a server that says less"
    assert rows[4:] == [f"ray: {AWAY['condition']}"]
    assert json.loads(weft("engines", "--json").out)[1] == CLUSTER


def test_one_engine_with_its_nodes_and_its_queue(double: Double, weft: Weft) -> None:
    double.on("GET", "engines/gpu", as_json(CLUSTER | QUEUE))
    out = weft("engines", "gpu").out
    rows = [" ".join(row.split()) for row in out.splitlines()]
    for wanted in (
        "gpu kubernetes up",
        "cpus ███░░░░░░░ 51.2 of 192 in use: 48 by jobs, 3.2 by others",
        "gpus ████░░░░░░ 7 of 16 in use",
        "memory ██░░░░░░░░ 260 GiB of 1.5 TiB in use: 250 GiB by jobs, 10 GiB by others",
        "nodes 1 ready, 1 not ready, up to 1 more when needed",
        "admission by Kueue's queue a",
        "jobs 2 running, 31 queued",
        "n1 ready 51.2/96 7/8 NVIDIA-[A100] 260G/768G nvidia.com/gpu",
        "n2 not ready 0/96 0/8 NVIDIA-[A100] 0/768G nvidia.com/gpu",
        "gpu-0-0 potential 0/96 0/8 NVIDIA-[A100] 0/768G nvidia.com/gpu",
        "PENDING job-1 held waits in Kueue's queue a: [quota]",
        "7 job-2 mnist Unreachable since 2026-01-31",
        "and 29 jobs of other projects",
    ):
        assert wanted in rows, wanted
    assert "2 × 8 cpus, 4 gpus, 64 GiB, for" in out
    assert json.loads(weft("engines", "gpu", "--json").out) == CLUSTER | QUEUE

    double.on("GET", "engines/ray", as_json(AWAY | {"nodes": [], "waiting": [], "waiting_of_others": 1}))
    rows = [" ".join(row.split()) for row in weft("engines", "ray").out.splitlines()]
    assert f"condition {AWAY['condition']}" in rows
    assert rows[-1] == "waiting: 1 job of other projects"
    assert not [row for row in rows if row.startswith(("cpus", "nodes"))]

    double.on("GET", "engines/moon", problem(404, "not_found", "no engine 'moon'; there are: gpu, ray"))
    done = weft("engines", "moon")
    assert (done.code, done.out) == (ExitCode.NOT_FOUND, "")
    assert "there are: gpu, ray" in done.err


def test_many_nodes_are_all_in_a_pipe(double: Double, weft: Weft) -> None:
    node = CLUSTER_NODES[0]
    double.on("GET", "engines/gpu", as_json(CLUSTER | {"nodes": [node | {"name": f"n{n}"} for n in range(500)]}))
    assert len([line for line in weft("engines", "gpu").out.splitlines() if line.startswith("n")]) == 500 + 1
