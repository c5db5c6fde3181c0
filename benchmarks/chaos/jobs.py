"""The jobs: submitted by clients that repeat what was not answered, and counted at the end."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.api.conftest import zipped

from weft_core.lifecycle.states import TERMINAL

_CLIENTS = 4
_AGAIN = 0.2  # seconds
_PROGRAM = Path(__file__).with_name("audited.py")
_MANIFEST = """
name: chaos-{number}
engine: {engine}
retries: 20
cpus: {cpus}
memory: 256 MiB
framework: {{name: python, version: "3.11", command: "python audited.py {folder} {lines} {seconds}"}}
"""
_ENDED = {state.value for state in TERMINAL} | {"HALTED"}


@dataclass
class Verdict:
    """The findings at the end; each of the lists should be empty."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    """Jobs that ran again though no process of theirs was killed: allowed, and worth a look."""
    attempts: int = 0
    checked_lines: int = 0

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.stuck or self.failed or self.lines)


class Jobs:
    """Jobs in turns on these engines.

    Args:
        url: of the API.
        token: a user's.
        folder: for the audit file; learners see it.
    """

    def __init__(self, url: str, token: str, folder: Path, engines: Sequence[str]) -> None:
        self._url, self._token, self._folder, self._engines = url, token, folder, engines
        self.cpus, self.seconds, self.lines = 0.25, 1.0, 20
        self.ids: dict[int, str] = {}
        (folder / "locks").mkdir()
        (folder / "audit").touch()
        for made in (folder / "locks", folder / "audit"):
            made.chmod(0o777)  # learners may run as any user

    def submit(self, number: int, seconds: float) -> None:
        """Submit jobs as fast as the API takes them, spread over about ``seconds``; returns when all are durable."""

        def client(first: int) -> None:
            for job in range(first, number, _CLIENTS):
                self._submit(job)
                time.sleep(seconds * _CLIENTS / number)

        clients = [threading.Thread(target=client, args=(first,)) for first in range(_CLIENTS)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()

    def open(self) -> list[str]:
        """The jobs that have not ended, with why."""
        found = self._all()
        return [f"{job['id']} {job['state']}: {job['reason']}" for job in found if job["state"] not in _ENDED]

    def check(self, disturbed: set[str]) -> Verdict:
        """Compare the API's view with the submitted jobs and with the programs' own records."""
        verdict = Verdict()
        shown = {job["id"]: job for job in self._all()}
        verdict.lost += [f"job {n}: submitted as {id_}, not listed" for n, id_ in self.ids.items() if id_ not in shown]
        verdict.twice += [f"{id_} was submitted by nobody" for id_ in shown.keys() - set(self.ids.values())]
        begun: Counter[tuple[str, int]] = Counter()
        ended: dict[str, list[int]] = defaultdict(list)
        for line in (self._folder / "audit").read_text().splitlines():
            id_, attempt, what, _ = line.split()
            if what == "begin":
                begun[id_, int(attempt)] += 1
            elif what == "end":
                ended[id_].append(int(attempt))
            else:
                verdict.twice.append(f"{id_} attempt {attempt} began while another one ran")
        verdict.twice += [f"{id_} attempt {n} began {times} times" for (id_, n), times in begun.items() if times > 1]
        for id_, job in shown.items():
            if job["state"] not in _ENDED:
                verdict.stuck.append(f"{id_} is {job['state']}: {job['reason']} {job.get('condition') or ''}")
                continue
            if job["state"] != "COMPLETED":
                verdict.failed.append(f"{id_} is {job['state']}: {job['reason']}")
                continue
            if not ended[id_]:
                verdict.lost.append(f"{id_} is COMPLETED and has not run to its end")
            if len(ended[id_]) > 1 and id_ not in disturbed:
                verdict.twice.append(f"{id_} ran to its end in attempts {ended[id_]}, and nobody killed it")
            self._check_lines(id_, verdict, disturbed)
        return verdict

    def _check_lines(self, job: str, verdict: Verdict, disturbed: set[str]) -> None:
        attempts = self._get(f"/jobs/{job}")["attempts"]
        verdict.attempts += len(attempts)
        if len(attempts) > 1 and job not in disturbed:
            verdict.repeated.append(f"{job}: {[(attempt['outcome'], attempt['reason']) for attempt in attempts]}")
        lines: dict[int, list[int]] = defaultdict(list)
        for line in self._get(f"/jobs/{job}/logs?limit=1000")["lines"]:
            words = line["text"].split()
            if len(words) == 2 and words[0].isdecimal():  # not the agent's own words
                lines[int(words[0])].append(int(words[1]))
        for attempt in attempts:
            found, n = lines[attempt["n"]], attempt["n"]
            verdict.checked_lines += len(found)
            if found != list(range(len(found))):
                verdict.lines.append(f"{job} attempt {n}: lost, doubled or out of order: {found}")
            elif attempt["outcome"] == "SUCCEEDED" and len(found) != self.lines:
                verdict.lines.append(f"{job} attempt {n}: {len(found)} lines of {self.lines}")

    def _submit(self, number: int) -> None:
        engine = self._engines[number % len(self._engines)]
        text = _MANIFEST.format(
            number=number, engine=engine, cpus=self.cpus, folder=self._folder, lines=self.lines, seconds=self.seconds
        )
        answer = self._call(
            "POST",
            "/jobs",
            headers={"Idempotency-Key": str(uuid.uuid4())},
            data={"manifest": text},
            files={"code": zipped(**{"audited__py": _PROGRAM.read_text()})},
        )
        if answer.status_code != 201:
            raise RuntimeError(f"job {number} is refused: {answer.status_code} {answer.text}")
        self.ids[number] = answer.json()["id"]

    def _all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self._get(f"/jobs?limit=200{cursor}")
            found += page["jobs"]
            if not page.get("next_cursor"):
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def _get(self, path: str) -> Any:
        answer = self._call("GET", path)
        answer.raise_for_status()
        return answer.json()

    def _call(self, method: str, path: str, **what: Any) -> httpx.Response:
        """The first answer that is no error of a service in trouble; clients wait as long as a user would."""
        headers = {"Authorization": f"Bearer {self._token}", **what.pop("headers", {})}
        while True:
            try:
                answer = httpx.request(method, f"{self._url}/api/v1{path}", headers=headers, timeout=15, **what)
            except httpx.TransportError:
                time.sleep(_AGAIN)
                continue
            if answer.status_code < 500 and answer.status_code != 429:
                return answer
            time.sleep(_AGAIN)
