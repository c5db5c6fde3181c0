"""Webhooks of real jobs, and rules that watch them."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from tests.e2e.stack import Stack, eventually, manifest
from tests.receivers import receiver

import weft

KEY = "the key of the webhook"
PROGRAM = """
import math, time
from weft_trainer import log_metrics
log_metrics(loss=1.0, step=1)
log_metrics(loss=math.nan, step=2)
print("CUDA error: device-side assert", flush=True)
time.sleep(600)
"""


def test_a_completed_job_posts_a_signed_webhook(stack: Stack) -> None:
    stack.client.secrets.set("hook-key", KEY)
    with receiver() as hook:
        notify = [{"url": f"{hook.url}/done", "secret": "hook-key"}]
        job = stack.train(manifest("true", notify=notify), None)
        assert job.wait().state == "COMPLETED"
        eventually(lambda: hook.requests, "the webhook")
        (request,) = hook.requests
        [delivery] = eventually(lambda: delivered(job), "that it is noted")
        shown = stack.weft("deliveries", job.id).stdout
        stack.weft("deliveries", job.id, "--replay", delivery.id)
        eventually(lambda: len(hook.requests) == 2, "the replay")
    time, signature = (part.partition("=")[2] for part in request.headers["Weft-Signature"].split(","))
    assert hmac.new(KEY.encode(), f"{time}.".encode() + request.body, hashlib.sha256).hexdigest() == signature
    told = request.json
    assert (told["state"], told["job"]["id"], told["message"]) == ("COMPLETED", job.id, "completed")
    assert (delivery.event, delivery.event_id, delivery.status) == ("COMPLETED", told["id"], "HTTP 204")
    assert delivery.id in shown
    assert {again.headers["Weft-Event-Id"] for again in hook.requests} == {told["id"]}


def delivered(job: weft.Job) -> list[weft.models.Delivery]:
    return [delivery for delivery in job.deliveries() if delivery.state == "delivered"]


def test_rules_notify_and_halt(stack: Stack) -> None:
    with receiver() as hook:
        rules: list[dict[str, Any]] = [
            {"when": "log /CUDA error/", "then": "notify"},
            {"when": "metric loss is nan", "then": ["halt", "notify"]},
        ]
        notify = [{"url": hook.url, "on": ["HALTED"], "format": "slack"}]
        command = f"cat > train.py <<'END'\n{PROGRAM}\nEND\nexec python train.py"
        job = stack.train(manifest(command, notify=notify, rules=rules), None)
        ended = job.wait(check=False)
        assert ended.state == "HALTED"
        reason = "halted by the rule 'metric loss is nan': loss was nan at step 2 (learner 1)"
        assert ended.reason == reason
        eventually(lambda: len(hook.requests) == 3, "three messages")
    texts = sorted(request.json["text"].partition("\n")[2] for request in hook.requests)
    assert texts[0] == reason
    assert texts[1].startswith("the rule 'log /CUDA error/' has fired: line ")
    assert texts[1].endswith("of learner 1: CUDA error: device-side assert")
    assert texts[2] == "the rule 'metric loss is nan' has fired: loss was nan at step 2 (learner 1)"
