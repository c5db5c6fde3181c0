"""``weft list``, ``show``, ``checkpoints``, ``deliveries`` describe jobs; ``halt``, ``resume``, ``delete`` change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import Weft
from tests.cli.double import ID, Answer, Double, Seen, as_json, job, jobs_page

from weft.exits import ExitCode
from weft.ui.jobs import package_list


@pytest.mark.parametrize("reference", ["@last", ID, "job-4k9x", "4k9x", "mnist"])
def test_a_job_is_found_by(double: Double, weft: Weft, reference: str) -> None:
    double.on("GET", "jobs", jobs_page(job()))
    double.on("GET", f"jobs/{ID}", as_json(job()))
    done = weft("show", reference, "--json")
    assert json.loads(done.out)["id"] == ID


def test_a_name_of_several_jobs_is_ambiguous(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(), job(id="job-000000000001")))
    done = weft("show", "mnist")
    assert done.code == 1
    assert ID in done.err
    assert "job-000000000001" in done.err


def test_text_in_a_description_finds_no_job(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(name="other")))
    assert weft("show", "digits").code == ExitCode.NOT_FOUND


def test_list_is_paged_and_filtered(double: Double, weft: Weft) -> None:
    def page(seen: Seen) -> Answer:
        first = int(seen.query.get("cursor", ["0"])[0])
        last = min(first + int(seen.query["limit"][0]), 250)
        jobs = [job(id=f"job-{n:012}", name=f"j{n}") for n in range(first, last)]
        return as_json({"jobs": jobs, "next_cursor": str(last) if last < 250 else None})

    double.on("GET", "jobs", page)
    assert len(json.loads(weft("list", "--json").out)) == 20
    assert len(json.loads(weft("list", "--all", "--json").out)) == 250
    done = weft("list", "-n", "3", "--state", "failed", "--state", "HALTED", "--label", "a=b", "--q", "x")
    assert [row.split()[0] for row in done.out.splitlines()] == ["ID", *(f"job-{n:012}" for n in range(3))]
    assert double.seen[-1].query == {"state": ["FAILED", "HALTED"], "label": ["a=b"], "q": ["x"], "limit": ["4"]}


def test_list_shows_chosen_columns(double: Double, weft: Weft) -> None:
    values = {"last": 0.5, "min": 0.25, "max": 0.75, "step": 1}
    double.on("GET", "jobs", jobs_page(job(params={"lr": "0.1"}, metrics={"loss": values}), job(id="job-2")))
    head, first, second = weft("list", "-c", "param:lr", "--column", "metric:loss:min").out.splitlines()
    assert head.split()[2:5] == ["STATE", "lr", "loss"]
    assert first.split()[3:5] == ["0.1", "0.25"]
    assert second.split()[3:5] == ["–", "–"]
    assert double.seen[-1].query["param"] == ["lr"]
    done = weft("list", "--column", "lr")
    assert (done.code, "param:NAME" in done.err) == (2, True)


def test_show_tells_parameters(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job(params={"lr": "0.1", **{f"p{n}": "x" for n in range(40)}})))
    shown = weft("show", ID).out
    assert "PARAMETER" in shown
    assert "and 11 more" in shown


def test_show_names_what_waits_for_what(double: Double, weft: Weft) -> None:
    before = [{"job": "job-1", "on": "ended", "state": "PROCESSING"}, {"job": "job-2", "on": "ended", "state": None}]
    double.on("GET", f"jobs/{ID}", as_json(job(after=before, awaited_by=["job-3", "job-4"])))
    shown = " ".join(weft("show", ID).out.split())
    assert "starts after job-1 (PROCESSING), job-2 (deleted)" in shown
    assert "awaited by job-3, job-4" in shown


def test_an_empty_list_prints_no_data(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page())
    done = weft("list")
    assert (done.code, done.out) == (0, "")
    assert "no jobs yet" in done.err
    assert json.loads(weft("list", "--json").out) == []


def test_a_pipe_gets_whole_names_and_reasons(double: Double, weft: Weft) -> None:
    double.on("GET", "jobs", jobs_page(job(name="n" * 63, reason="r" * 300)))
    done = weft("list")
    assert "n" * 63 in done.out
    assert "r" * 300 in done.out


def test_show_tells_attempts_and_learners(double: Double, weft: Weft) -> None:
    learners = [
        {"learner": 1, "phase": "EXITED", "address": "10.0.0.1", "exit_code": 0, "exit_reason": ""},
        {"learner": 2, "phase": "EXITED", "address": None, "exit_code": 137, "exit_reason": "out of [memory]"},
    ]
    attempt = {"n": 1, "outcome": "FAILED", "reason": "learner 2 was killed", "exit_code": 137, "learners": learners}
    times = {"created_at": "2026-01-31T08:15:03Z", "ended_at": "2026-01-31T08:15:13Z"}
    double.on("GET", f"jobs/{ID}", as_json(job(attempts=[attempt | times], condition="Unreachable since 08:15")))
    out = weft("show", ID).out
    for text in (
        "Unreachable since 08:15",
        "attempt 1  FAILED  10.0 s  learner 2 was killed",
        "137",
        "out of [memory]",
    ):
        assert text in out


def test_show_lists_what_the_program_has_left_in_its_folder(double: Double, weft: Weft) -> None:
    kept = {"files": 3, "bytes": 2048, "listed": [{"path": "runs/", "files": 2, "bytes": 2000}]}
    lost = {"files": 1, "bytes": 4 << 30, "listed": [{"path": "[big].pt", "files": 1, "bytes": 4 << 30}]}
    left = {
        "place": "workdir/",
        "line": "results: [runs/**]",
        "named": {"files": 0, "bytes": 0, "listed": []},
        "kept": kept,
        "lost": [lost | {"reason": "it is too large"}],
        "unmatched": ["*.ckpt"],
    }
    learner = {"learner": 1, "phase": "EXITED", "exit_code": 0, "leftovers": left}
    double.on("GET", f"jobs/{ID}", as_json(job(attempts=[{"n": 1, "learners": [learner]}])))
    lines = [line.strip() for line in weft("show", ID).out.splitlines()]
    assert lines[-4:] == [
        "learner 1: 3 files (2 KiB: runs/, …) kept below workdir/",
        "learner 1: 1 file (4 GiB: [big].pt) not kept, as it is too large",
        "learner 1: no file matches these patterns of results: *.ckpt",
        "learner 1: the manifest's line for all of them: results: [runs/**]",
    ]


def test_show_names_the_nodes(double: Double, weft: Weft) -> None:
    learner = {"learner": 1, "phase": "PROCESSING", "node": "gpu-[1]", "address": "10.4.2.17"}
    attempt = {"n": 1, "learners": [learner, learner | {"learner": 2, "node": None}]}
    double.on("GET", f"jobs/{ID}", as_json(job(attempts=[attempt])))
    rows = [line.split() for line in weft("show", ID).out.splitlines()]
    assert ["LEARNER", "PHASE", "NODE", "ADDRESS", "EXIT", "REASON"] in rows
    assert ["1", "PROCESSING", "gpu-[1]", "10.4.2.17"] in rows
    assert ["2", "PROCESSING", "10.4.2.17"] in rows


def test_halt_resume_and_delete(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("POST", f"jobs/{ID}/halt", as_json(job(desired="HALTED"), 202))
    double.on("POST", f"jobs/{ID}/resume", as_json(job(state="QUEUED"), 202))
    double.on("DELETE", f"jobs/{ID}", as_json(job(), 202))
    assert weft("halt", ID, "--grace", "7").code == 0
    assert double.seen[-1].json == {"grace_seconds": 7}
    assert "QUEUED" in weft("resume", ID).err
    assert weft("delete", ID).code == ExitCode.USAGE
    assert not double.requests("DELETE", f"jobs/{ID}")
    assert weft("delete", ID, "--yes").code == 0
    assert double.requests("DELETE", f"jobs/{ID}")


def test_label_sets_and_removes(double: Double, weft: Weft) -> None:
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("PATCH", f"jobs/{ID}", as_json(job(labels={"team": "vision", "run": "a=b"})))
    done = weft("label", ID, "team=vision", "run=a=b", "old-")
    [sent] = double.requests("PATCH", f"jobs/{ID}")
    assert (done.code, sent.json) == (0, {"labels": {"team": "vision", "run": "a=b", "old": None}})
    assert "run=a=b team=vision" in done.err
    refused = weft("label", ID, "old")
    assert refused.code == ExitCode.USAGE
    assert "neither KEY=VALUE nor KEY-" in refused.err


def test_deliveries_and_a_replay(double: Double, weft: Weft) -> None:
    told: dict[str, Any] = {
        "id": "dlv-1",
        "event_id": f"{ID}-17",
        "event": "FAILED",
        "message": "it broke",
        "format": "json",
    }
    told |= {"target": "https://hooks.example.com/…", "state": "failed", "tries": 9, "status": "HTTP 500"}
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("GET", f"jobs/{ID}/deliveries", as_json({"deliveries": [told]}))
    done = weft("deliveries", ID)
    for shown in ("dlv-1", "FAILED", "https://hooks.example.com/…", "failed", "9", "HTTP 500"):
        assert shown in done.out
    assert json.loads(weft("deliveries", ID, "--json").out) == [told]
    double.on("POST", f"jobs/{ID}/deliveries/dlv-1/replay", as_json(told | {"state": "waiting"}, status=202))
    assert "dlv-1 is being sent to https://hooks.example.com/… again" in weft("deliveries", ID, "--replay", "dlv-1").err
    double.on("GET", f"jobs/{ID}/deliveries", as_json({"deliveries": []}))
    assert "has sent no notification (yet)" in weft("deliveries", ID).err


def test_checkpoints_and_a_rerun_from_the_last(double: Double, weft: Weft) -> None:
    kept = {"generation": "000002-000001", "learner": 1, "job": ID, "attempt": 2, "at": "2026-01-31T08:21:44Z"}
    double.on("GET", f"jobs/{ID}", as_json(job()))
    double.on("GET", f"jobs/{ID}/checkpoints", as_json({"checkpoints": [kept | {"files": 3, "size": 4711004}]}))
    done = weft("checkpoints", ID)
    assert done.out.split()[:5] == ["CHECKPOINT", "STORED", "BY", "FILES", "SIZE"]
    assert all(word in done.out for word in ("000002-000001", "attempt 2", "4.5 MiB"))
    began = {"job": ID, "generation": "000002-000001", "attempt": 2, "at": 1769847704.0, "files": 3, "size": 4711004}
    attempt: dict[str, Any] = {"n": 1, "outcome": None, "reason": "", "exit_code": None, "learners": []}
    attempt |= {"checkpoint": began, "created_at": None, "ended_at": None}
    new = job(checkpoint_of=began, rerun_of=ID, attempts=[attempt])
    double.on("POST", f"jobs/{ID}/rerun", as_json(new, 201))
    assert weft("rerun", ID, "--from-checkpoint").code == 0
    assert double.seen[-1].json == {"set": {}, "from_checkpoint": True}
    assert weft("rerun", ID, "--checkpoint", "000002-000001").code == 0
    assert double.seen[-1].json == {"set": {}, "from_checkpoint": "000002-000001"}
    double.on("GET", f"jobs/{ID}", as_json(new))
    shown = weft("show", ID).out
    assert "began with" in shown
    assert "from the checkpoint of" in shown
    assert "3 files, 4.5 MiB" in shown
    double.on("GET", f"jobs/{ID}", as_json(job(checkpoint_of={"job": "job-parent", "shared": True})))
    assert "the checkpoint of job-parent" in [
        line.partition("began with")[2].strip() for line in weft("show", ID).out.splitlines()
    ]


def test_of_many_packages_those_that_were_asked_for_are_shown() -> None:
    lock = [{"name": f"part-{number}", "version": "1.0"} for number in range(40)]
    lock += [
        {"name": "asked-for", "version": "2.0"},
        {"name": "pillow", "version": "11", "replaces": "12"},
    ]
    told = {"state": "READY", "lock": lock}
    shown = package_list(told, ["Asked_For[extra]>=2"])
    assert shown is not None
    assert shown.startswith("asked-for 2.0, pillow 11 (the image has 12), part-0 1.0, ")
    assert shown.endswith(", and 30 more (--json has all)")
