"""The learner's side of the API (``/api/v1/learner``)."""

from __future__ import annotations

import json
import os
import random
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from weft_trainer.control import Control
from weft_trainer.errors import ApiAway, ApiError, Fenced
from weft_trainer.http import Answer, Http, Unreachable, WebSocket
from weft_trainer.service.mask import Mask
from weft_trainer.service.spool import Batch
from weft_trainer.spec import IdentityToken, Peer, StoreKeys, identity_token, store_keys

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_ABORT_SECONDS = 10.0
_LONGEST_REASON = 2000
_STACKS_SECONDS = 60.0
_HELD_LONGER = 20.0
"""Seconds by which the answer to a heartbeat may come later than the agent asks for."""
_PROFILE_SECONDS = 20.0
_AGAIN = (408, 425, 429)


class ApiClient:
    """Every call is repeated, with growing pauses, for as long as the API is away (no connection, 5xx), or until its
    ``deadline`` (seconds from now). All calls are idempotent on the server's side, so a lost answer does no harm.

    Texts of events, reasons and reports are masked. Batches of lines and metrics are masked before, on their way to
    the spool.

    Thread-safe. Raises Fenced when the attempt is over, ApiError when the API refuses, ApiAway at the deadline.
    """

    def __init__(self, url: str, token: str, rank: int, instance: str, control: Control) -> None:
        self.url = url
        self._base = url + "/api/v1/learner/"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if place := os.environ.get("TRACEPARENT"):
            self._headers["traceparent"] = place  # these calls belong to the trace of the job's start
        self._rank = rank
        self.instance = instance
        self.mask = Mask([token])
        """Masks the learner's secrets, as soon as it has them."""
        self._control = control
        self._http = Http()

    def start(self, hostname: str) -> dict[str, Any]:
        """Exchange the token for the start grant: the learner's spec."""
        spec: dict[str, Any] = self._post("start", {"hostname": hostname})
        return spec

    def address(self, address: str, ports: Sequence[int]) -> None:
        self._post("address", {"address": address, "ports": list(ports)})

    def peers(self, wait: float) -> list[Peer] | None:
        """All peers in order of rank, or None when some have not reported within ``wait`` seconds."""
        query = urllib.parse.urlencode({"rank": self._rank, "wait": f"{wait:g}"})
        answer = self._call("GET", f"peers?{query}", None, timeout=wait + 20)
        if not answer["ready"]:
            return None
        peers = [Peer(peer["rank"], peer["address"], tuple(peer["ports"])) for peer in answer["peers"]]
        return sorted(peers, key=lambda peer: peer.rank)

    def round(self, wait: float, reason: str = "", last_lines: Sequence[str] = (), **standing: Any) -> dict[str, Any]:
        """Take part in the rounds of an elastic job: see ``RoundCall`` of the API."""
        said = self.mask.within({"reason": reason, "last_lines": list(last_lines)})
        answer: dict[str, Any] = self._post("round", {"wait": wait, **said, **standing}, timeout=wait + 20)
        return answer

    def phase(
        self,
        phase: str,
        message: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        place: Peer | None = None,
    ) -> None:
        """``inputs``: summaries of the manifest's inputs; ``checkpoint``: the checkpoint that the learner begins
        with; ``place``: where its program listens."""
        more = {"message": self.mask.within(message), "inputs": inputs, "checkpoint": checkpoint}
        if place is not None:
            more |= {"address": place.address, "ports": list(place.ports)}
        self._post("phase", {"phase": phase} | {name: value for name, value in more.items() if value})

    def keep(self, exit_code: int, reason: str, last_lines: Sequence[str], seconds: float) -> None:
        """Report that the command has failed, and that this learner stays for so long."""
        kept = {
            "exit_code": exit_code,
            "reason": self.mask.text(reason)[:_LONGEST_REASON],
            "last_lines": self.mask.within(list(last_lines)),
            "seconds": seconds,
        }
        self._post("phase", {"phase": "PROCESSING", "kept": kept})

    def heartbeat(self, content: dict[str, Any], wait: float) -> dict[str, Any]:
        """A single try: the next heartbeat is the better repetition.

        Args:
            wait: seconds for which the API may hold the answer back until somebody asks for a tunnel. Heartbeats in
                reports prolong that.
        """
        query = urllib.parse.urlencode({"rank": self._rank, "wait": f"{wait:g}"})
        answer: dict[str, Any] = self._post(f"heartbeat?{query}", content, deadline=0, timeout=wait + _HELD_LONGER)
        return answer

    def report(self, heartbeat: Mapping[str, Any] | None, logs: Batch | None, metrics: Batch | None) -> dict[str, Any]:
        """A heartbeat, lines and metrics in one call, in a single try. The answer names the parts that were refused."""
        head = json.dumps({"rank": self._rank, "instance": self.instance, "heartbeat": heartbeat})
        parts = [head[:-1].encode()]
        for name, content, batch in (("logs", "lines", logs), ("metrics", "records", metrics)):
            if batch is not None:
                begin = f'"{name}": {{"sequence": {batch.sequence}, "{content}": ['
                parts.append(begin.encode() + b",".join(batch.lines) + b"]}")
        answer: dict[str, Any] = self._call("POST", "report", b", ".join(parts) + b"}", deadline=0)
        return answer

    def tunnel(self, tunnel_id: str, timeout: float) -> WebSocket:
        """The connection for a tunnel that a heartbeat's answer has asked for. Raises: Closed."""
        url = f"{self._base}tunnels/{tunnel_id}?rank={self._rank}"
        return self._http.websocket(url, self._headers, timeout)

    def logs(self, batch: Batch, instance: str, *, late: bool = False, deadline: float | None = None) -> None:
        """Send one batch of lines, each already the JSON object ``{"t": …, "s": …}``.

        Args:
            late: an agent that has died left the lines. The API takes them after the attempt's end, too.
        """
        self._batch("logs", "lines", batch, instance, {"late": True} if late else {}, deadline)

    def metrics(self, batch: Batch, instance: str) -> None:
        """Send one batch of records, each already the JSON object that ``metrics.records`` makes."""
        self._batch("metrics", "records", batch, instance)

    def stacks(self, request: str, report: Mapping[str, Any]) -> None:
        """Answer a heartbeat's request for stacks (``weft_core.hangs.report``)."""
        self._post("stacks", {"request": request, "report": self.mask.within(report)}, deadline=_STACKS_SECONDS)

    def profile(self, profile: str, text: str) -> None:
        """Have the job's history say how a profile goes."""
        text = self.mask.text(text)[:_LONGEST_REASON]
        self._post("profile", {"profile": profile, "text": text}, deadline=_PROFILE_SECONDS)

    def storing(self, exit_code: int) -> dict[str, Any]:
        answer: dict[str, Any] = self._post("storing", {"exit_code": exit_code})
        return answer

    def store_keys(self) -> StoreKeys:
        """New temporary keys for the learner's locations."""
        keys = store_keys(self._post("store-keys", {}))
        assert keys is not None
        return keys

    def identity_token(self) -> IdentityToken:
        """A new identity token."""
        token = identity_token(self._post("identity-token", {}))
        assert token is not None
        return token

    def object_urls(
        self, space: str, operation: str, keys: Sequence[str], deadline: float | None = None
    ) -> dict[str, str]:
        """Presigned URLs in the installation's own store; ``operation`` is put or get."""
        answer = self._post("objects", {"space": space, "op": operation, "keys": list(keys)}, deadline=deadline)
        urls: dict[str, str] = answer["urls"]
        return urls

    def begin_multipart(self, space: str, key: str) -> str:
        answer = self._post("objects", {"space": space, "op": "begin", "keys": [key]})
        upload: str = answer["upload"]
        return upload

    def part_url(self, space: str, key: str, upload: str, number: int) -> str:
        body = {"space": space, "op": "parts", "keys": [key], "upload": upload, "numbers": [number]}
        url: str = self._post("objects", body)["urls"][str(number)]
        return url

    def complete_multipart(self, space: str, key: str, upload: str, etags: Sequence[str]) -> None:
        body = {"space": space, "op": "complete", "keys": [key], "upload": upload, "etags": list(etags)}
        self._post("objects", body)

    def abort_multipart(self, space: str, key: str, upload: str) -> None:
        body = {"space": space, "op": "abort", "keys": [key], "upload": upload}
        self._post("objects", body, deadline=_ABORT_SECONDS)

    def list_objects(self, space: str, prefix: str) -> list[dict[str, Any]]:
        answer = self._post("objects", {"space": space, "op": "list", "keys": [prefix] if prefix else []})
        objects: list[dict[str, Any]] = answer["objects"]
        return objects

    def delete_objects(self, space: str, keys: Sequence[str]) -> None:
        self._post("objects", {"space": space, "op": "delete", "keys": list(keys)})

    def exit(
        self,
        exit_code: int,
        reason: str,
        last_lines: Sequence[str],
        deadline: float,
        told: Mapping[str, Mapping[str, Any] | None] = MappingProxyType({}),
    ) -> None:
        """``told``: summaries of the results (``outputs``) and of the job's folder (``leftovers``)."""
        body = {"exit_code": exit_code, **self.mask.within({"reason": reason, "last_lines": list(last_lines)})}
        body["reason"] = body["reason"][:_LONGEST_REASON]
        summaries = {name: value for name, value in told.items() if value}
        if "leftovers" in summaries:  # it names files
            summaries["leftovers"] = self.mask.within(summaries["leftovers"])
        self._post("exit", body | summaries, deadline=deadline)

    def _batch(
        self,
        path: str,
        name: str,
        batch: Batch,
        instance: str,
        more: Mapping[str, Any] = MappingProxyType({}),
        deadline: float | None = None,
    ) -> None:
        head = json.dumps({"rank": self._rank, "instance": instance, "sequence": batch.sequence, **more})
        body = head[:-1].encode() + f', "{name}": ['.encode() + b",".join(batch.lines) + b"]}"
        self._call("POST", path, body, deadline=deadline)

    def _post(self, path: str, body: dict[str, Any], deadline: float | None = None, timeout: float = 30) -> Any:
        whole = {"rank": self._rank, "instance": self.instance, **body}
        return self._call("POST", path, json.dumps(whole).encode(), deadline=deadline, timeout=timeout)

    def _call(
        self, method: str, path: str, body: bytes | None, *, deadline: float | None = None, timeout: float = 30
    ) -> Any:
        end = None if deadline is None else time.monotonic() + deadline
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = self._http.request(
                    method, self._base + path, body=body, headers=self._headers, timeout=timeout
                )
                if answer.status < 300:
                    return json.loads(answer.body) if answer.body else None
                if answer.status < 500 and answer.status not in _AGAIN:
                    raise _refusal(path, answer)
                trouble = f"HTTP {answer.status}"
            except Unreachable as error:
                trouble = str(error)
            if self._control.fenced:
                raise Fenced
            if end is not None and time.monotonic() + pause > end:
                raise ApiAway(f"the API does not answer: {trouble}")
            time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
            pause = min(pause * 2, _LONGEST_PAUSE)


def _refusal(path: str, answer: Answer) -> Exception:
    if answer.status == 410:
        return Fenced()
    try:
        problem = json.loads(answer.body)
        detail, code = str(problem.get("detail") or problem.get("title") or ""), str(problem.get("code") or "")
    except (ValueError, AttributeError):
        detail, code = answer.body[:200].decode(errors="replace"), ""
    operation = path.partition("?")[0]
    return ApiError(
        f"the API refused '{operation}': {detail or 'no reason given'} ({answer.status})", answer.status, code
    )
