"""The calls of users and learners while the service dies: each is repeated until it is answered, as real ones are."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tests.api.conftest import zipped
from tests.faults.service import Service

PATIENCE = 600.0
_ENDED, _GONE = ("COMPLETED", "FAILED", "HALTED"), "gone"
_MANIFEST = "name: %s\nretries: %d\nframework: {name: pytorch, command: echo hello}\n"
_HALVING = """
name: halving
retries: 0
framework: {name: pytorch, command: echo hello}
sweep:
  parameters: {lr: {log: [0.001, 0.1]}}
  metric: loss
  goal: min
  search: asha
  trials: 2
  rungs: {parameter: epochs, max: 2, reduction: 2, sync: true}
"""
_ASKED = """
name: asked
retries: 0
framework: {name: pytorch, command: echo hello}
sweep: {parameters: {lr: [0.1, 0.2]}, metric: loss, search: manual, trials: 2}
"""
_LINES, _BATCHES = 2, 3
_MANY = 1100
"""Values of a record. Two such records are folded."""


class Caller:
    """HTTP with one token, through deaths of the service."""

    def __init__(self, service: Service, token: str) -> None:
        self._service = service
        self._http = httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {token}"}, timeout=30, verify=False
        )

    def __call__(self, method: str, path: str, **what: Any) -> httpx.Response:
        """The first answer that is none of a service in trouble."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self._http.request(method, f"/api/v1{path}", **what)
            except httpx.TransportError:
                self._service.revive()
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    return answer
            assert time.monotonic() < end, f"{method} {path} is not answered"
            time.sleep(0.02)

    def close(self) -> None:
        self._http.close()


class Learners:
    """Plays the learner of every run that appears on the engine."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service, self._folder = service, folder
        self._played: dict[str, threading.Thread] = {}
        self.started: Counter[str] = Counter()
        """How often user code has begun, by the name of the run."""
        self.failing: set[str] = set()
        """Jobs whose first attempt fails."""
        self.staying: set[str] = set()
        """Runs that go on until they are stopped."""
        self.measuring: set[str] = set()
        """Jobs with so many metrics that they are folded."""
        self.reported: set[str] = set()
        """Runs whose lines and metrics have been taken in."""
        self.wrong: list[str] = []

    def look(self) -> None:
        """Begin with the runs that are new, and start a service that has died anew."""
        self._service.revive()
        for path in self._folder.glob("*.run"):
            try:
                token = path.read_text()
            except FileNotFoundError:  # stopped just now
                continue
            if path.stem not in self._played:
                thread = threading.Thread(target=self._play, args=(path.stem, token), daemon=True)
                self._played[path.stem] = thread
                thread.start()

    def join(self) -> None:
        for thread in self._played.values():
            thread.join(PATIENCE)

    def _play(self, run: str, token: str) -> None:
        try:
            self._learn(run, Caller(self._service, token))
        except Exception as error:
            self.wrong.append(f"the learner of {run}: {error!r}")

    def _learn(self, run: str, call: Caller) -> None:
        job, _, n = run.removeprefix("weft-").rpartition("-")
        instance = str(uuid.uuid4())

        def post(verb: str, **body: Any) -> httpx.Response:
            return call("POST", f"/learner/{verb}", json={"rank": 0, "instance": instance, **body})

        if post("start", hostname="here").status_code != 200:
            return  # the attempt is over
        self.started[run] += 1
        post("phase", phase="DOWNLOADING")
        post("phase", phase="PROCESSING")
        for sequence in range(_BATCHES):
            lines = [{"t": 1_769_847_309_000, "s": f"{n} {sequence * _LINES + line}"} for line in range(_LINES)]
            post("logs", sequence=sequence, lines=lines)
        post("metrics", sequence=0, records=[{"t": 1.0, "step": 1, "values": {"loss": 0.5}}])
        if job in self.measuring:
            values = {f"loss{n}": 0.5 for n in range(_MANY)}
            post("metrics", sequence=1, records=[{"t": 1.0 + step, "step": step, "values": values} for step in (2, 3)])
        self.reported.add(run)
        stopped = False
        while run in self.staying and not stopped:
            answer = post("heartbeat")
            stopped = answer.status_code != 200 or answer.json()["stop"]
            time.sleep(0.1)
        code = 143 if stopped else 3 if job in self.failing and n == "1" else 0
        if code == 0:
            while (answer := post("storing", exit_code=0)).status_code == 200 and answer.json()["wait"]:
                time.sleep(0.05)
            self._store(post)
        post("exit", exit_code=code, reason=f"exit code {code}", last_lines=[])
        call.close()

    @staticmethod
    def _store(post: Callable[..., httpx.Response]) -> None:
        answer = post("objects", space="results", op="put", keys=["model.pt"])
        if answer.status_code == 200:
            httpx.put(answer.json()["urls"]["model.pt"], content=b"weights").raise_for_status()


class Story:
    """Four jobs: one completes, one fails and is retried, one is halted and resumed, and one is deleted as it runs. And
    two sweeps: the better of two trials goes on to its next rung, and a program asks for trials and stops its sweep."""

    def __init__(self, service: Service, folder: Path, token: str) -> None:
        self._folder = folder
        self.call = Caller(service, token)
        self.learners = Learners(service, folder)

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what}: not within {PATIENCE:g} s"
            self.learners.look()
            time.sleep(0.05)

    def submit(self, name: str, retries: int = 0) -> str:
        answer = self.call(
            "POST",
            "/jobs",
            headers={"Idempotency-Key": str(uuid.uuid4())},
            data={"manifest": _MANIFEST % (name, retries)},
            files={"code": zipped(train__py=f"print({name!r})")},
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def sweep(self, manifest: str) -> str:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = self.call("POST", "/sweeps", headers=key, json={"manifest": manifest})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def ask(self, sweep: str, lr: float, run: bool) -> Any:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"parameters": {"lr": lr}, "run": run}
        answer = self.call("POST", f"/sweeps/{sweep}/trials", headers=key, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def has_ended(self, sweep: str) -> bool:
        return self.call("GET", f"/sweeps/{sweep}").json()["ended_at"] is not None

    def trials(self, sweep: str) -> list[Any]:
        return list(self.call("GET", f"/sweeps/{sweep}/trials").json()["trials"])

    def is_in(self, job: str, *states: str) -> bool:
        answer = self.call("GET", f"/jobs/{job}")
        return (answer.json()["state"] if answer.status_code == 200 else _GONE) in states

    def tell(self) -> None:
        """Live through all of it, and check how it has ended."""
        wanted = self._act()
        self.learners.join()
        self._check(wanted)

    def _act(self) -> dict[str, list[str]]:
        learners = self.learners
        done, failing = self.submit("completes"), self.submit("retried", retries=1)
        learners.failing.add(failing)
        learners.measuring.add(failing)
        halted, deleted = self.submit("halted"), self.submit("deleted")
        halving, asked = self.sweep(_HALVING), self.sweep(_ASKED)
        elsewhere, stopped = self.ask(asked, 0.1, run=False), self.ask(asked, 0.2, run=True)["job"]
        self.call("PUT", f"/sweeps/{asked}/trials/{elsewhere['number']}/result", json={"value": 0.75})
        learners.staying |= {f"weft-{job}-1" for job in (halted, deleted, stopped)}
        for job in (halted, deleted, stopped):
            self.until(partial(self.is_in, job, "PROCESSING"), f"{job} runs")
            # What a learner sends after the end of its attempt is refused.
            self.until(partial(learners.reported.__contains__, f"weft-{job}-1"), f"{job} has reported")
        self.call("POST", f"/sweeps/{asked}/stop")
        self.call("POST", f"/jobs/{halted}/halt", json={"grace_seconds": 5})
        self.call("DELETE", f"/jobs/{deleted}")
        self.until(partial(self.is_in, halted, "HALTED"), "the halt")
        # A repeated resume that finds the first one done is refused, and has the same effect.
        self.call("POST", f"/jobs/{halted}/resume")
        self.until(partial(self.is_in, deleted, _GONE), "the deletion")
        for job in (done, failing, halted):
            self.until(partial(self.is_in, job, *_ENDED), f"the end of {job}")
        for sweep in (halving, asked):
            self.until(partial(self.has_ended, sweep), f"the end of {sweep}")
        better, worse = self.trials(halving)
        assert [trial["parameters"]["epochs"] for trial in (better, worse)] == [2, 1], "both have the same value"
        told = [(trial["number"], trial["state"], trial["value"]) for trial in self.trials(asked)]
        assert told == [(0, "COMPLETED", 0.75), (1, "HALTED", None)], told
        return {
            done: ["SUCCEEDED"],
            failing: ["FAILED", "SUCCEEDED"],
            halted: ["HALTED", "SUCCEEDED"],
            deleted: [],
            better["job"]: ["SUCCEEDED", "SUCCEEDED"],
            worse["job"]: ["SUCCEEDED"],
            stopped: ["HALTED"],
        }

    def _check(self, wanted: dict[str, list[str]]) -> None:
        assert self.learners.wrong == [], self.learners.wrong
        self.until(lambda: not list(self._folder.glob("*.run")), "nothing is left on the engine")
        listed = self.call("GET", "/jobs").json()["jobs"]
        assert {job["id"] for job in listed} == {job for job, ends in wanted.items() if ends}, "lost, or there twice"
        for job, ends in wanted.items():
            if not ends:
                continue
            shown = self.call("GET", f"/jobs/{job}").json()
            whole = ends[-1] == "SUCCEEDED"
            assert shown["state"] == ("COMPLETED" if whole else "HALTED"), shown["reason"]
            told = [(attempt["outcome"], attempt["reason"]) for attempt in shown["attempts"]]
            assert [outcome for outcome, _ in told] == ends, told
            for attempt in range(1, len(ends) + 1):
                assert self.learners.started[f"weft-{job}-{attempt}"] == 1, "user code ran once"
            lines = [line["text"] for line in self.call("GET", f"/jobs/{job}/logs").json()["lines"]]
            expected = [f"{n} {line}" for n in range(1, len(ends) + 1) for line in range(_LINES * _BATCHES)]
            assert lines == expected, "lost, doubled or out of order"
            many = job in self.learners.measuring
            records = self.call("GET", f"/jobs/{job}/metrics/records").json()["total"]
            assert records == (3 if many else 1) * len(ends), f"{records} records"
            series = self.call("GET", f"/jobs/{job}/metrics").json()["series"]
            points = Counter(metric["points"] for metric in series)
            assert points == ({1: len(ends), 2: _MANY * len(ends)} if many else {1: len(ends)}), points
            if whole:
                content = self.call("GET", f"/jobs/{job}/files/model.pt").content
                assert content == b"weights", f"the model is {content!r}"
