"""The secrets of a learner are masked in all its output."""

from __future__ import annotations

import base64
import io
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

import pytest
from tests.trainer.agents import Launch
from tests.trainer.conftest import Bucket, StartApi

from weft_trainer.control import Control
from weft_trainer.metrics.records import Record, masked
from weft_trainer.service.client import ApiClient
from weft_trainer.service.mask import Mask, MaskedStream

_SECRET = "pä/s?w+rd&\"1'\\"
_PRINT_IT = """
import base64, json, os, sys, urllib.parse
secret = os.environ["DB_PASSWORD"]
print("plain", secret)
print("url", "db://me:" + urllib.parse.quote(secret, safe="") + "@host")
print("form", urllib.parse.urlencode({"password": secret}))
print("header", base64.b64encode(b"me:" + secret.encode()).decode())
print("json", json.dumps(dict(os.environ)))
print("repr", {"password": secret})
print("key")
print(os.environ["KEY"])
print("kept", os.environ["PLAIN"])
sys.stdout.flush()
os.makedirs(os.environ["LOG_DIR"], exist_ok=True)
with open(os.environ["LOG_DIR"] + "/user_log.txt", "w") as file:
    print("in a file", secret, file=file)
from weft_trainer import log_metrics
log_metrics({secret: 0.5})
raise SystemExit("no entry for " + secret)
"""
_KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"


def test_a_program_that_prints_its_secrets(start_api: StartApi, launch: Launch, bucket: Bucket) -> None:
    env = {"DB_PASSWORD": _SECRET, "KEY": _KEY, "PLAIN": "nothing secret", "PROGRAM": _PRINT_IT}
    api = start_api(
        'python -c "$PROGRAM"',
        env=env,
        secrets=["DB_PASSWORD", "KEY"],
        checkpoints=bucket.location("checkpoints"),
        evaluation_metrics={
            "type": "regex_extractor",
            "groups": {
                "said": {"regex": "plain (?P<word>\\S+)", "scalars": {"note": {"type": "STRING", "value": "$word"}}}
            },
        },
    )
    assert launch(api).wait() == 1
    learner = api.learners[0]
    by_name = dict(line.split(" ", 1) for line in learner.lines if " " in line)
    assert by_name["plain"] == "***"
    assert by_name["url"] == "db://me:***@host"
    assert by_name["form"] == "password=***"
    assert by_name["kept"] == "nothing secret"
    assert "in a file ***" in learner.lines
    assert "no entry for ***" in learner.lines, learner.lines[-8:]
    key = learner.lines.index("key")
    assert learner.lines[key + 1 : key + 5] == ["***"] * 4
    sent = json.dumps([learner.lines, learner.exit, learner.records])
    stored = {
        key: content.decode() for key, content in api.objects.items() if key.endswith((".json", "training-log.txt"))
    }
    assert any(key.endswith("exit.json") for key in stored)
    assert "plain ***" in stored["results/learner-1/training-log.txt"]
    sent += "".join(stored.values())
    for secret in (_SECRET, "MIIEvQIBADANBgkq", bucket.location("")["secret_key"], api.token):
        for form in (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            assert form not in sent
    values: dict[str, Any] = {name: value for record in learner.records for name, value in record["values"].items()}
    assert values["***"] == 0.5
    assert values["note"] == "***"
    header = base64.b64decode(by_name["header"].replace("***", ""), validate=False)
    assert _SECRET.encode()[:4] not in header


def test_texts_that_the_agent_sends() -> None:
    sent: list[bytes] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = ApiClient(f"http://127.0.0.1:{server.server_port}", "token", 0, "me", Control())
        api.mask.learn([_SECRET, "beef"])  # short: it may be a part of a digest, which stays
        api.phase("PROCESSING", _SECRET, {"data": {"sha256": "beef"}})
        api.keep(1, _SECRET, [_SECRET], 1)
        api.round(0, state="broken", round=1, reason=_SECRET, last_lines=[_SECRET])
        api.stacks("now", {"threads": [{"frame": _SECRET}]})
        api.profile("20260131-081500-4f2a", _SECRET)
        lost = {"reason": _SECRET, "listed": [{"path": _SECRET}]}
        api.exit(1, _SECRET, [_SECRET], 10, {"outputs": {"sha256": "beef"}, "leftovers": {"lost": [lost]}})
        server.shutdown()
    texts = [json.dumps(json.loads(body), ensure_ascii=False) for body in sent]
    assert [text.count("***") for text in texts] == [1, 2, 2, 1, 1, 4]
    assert [text.count("beef") for text in texts] == [1, 0, 0, 0, 0, 1]
    assert not [text for text in texts if json.dumps(_SECRET, ensure_ascii=False) in text]


def test_the_agents_own_output() -> None:
    written = io.StringIO()
    print("failed with", _SECRET, file=cast(TextIO, MaskedStream(written, Mask([_SECRET]))), flush=True)
    assert written.getvalue() == "failed with ***\n"


@pytest.mark.parametrize("length", range(8, 24))
def test_base64_at_every_place(length: int) -> None:
    secret = "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz0123456789?>~", k=length))
    mask = Mask([secret])
    for before in range(5):
        for after in range(5):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                text = encode(b"x" * before + secret.encode() + b"y" * after).decode()
                rest = mask.text(text)
                assert "***" in rest
                assert len(rest.replace("***", "")) <= len(text) - (len(secret) * 8 - 10) // 6


@pytest.mark.parametrize(
    "encoded",
    [
        "pa!ss%20(w)o%23rd%2F1*x%2By~",  # encodeURIComponent
        "pa!ss%20(w)o#rd/1*x+y~",  # encodeURI
        "pa!ss%20(w)o%23rd/1*x+y~",  # a path
        "pa%21ss+%28w%29o%23rd%2F1*x%2By~",  # a form
        "pa%21ss%20%28w%29o%23rd%2F1%2Ax%2By~",  # Python
        "pa%21ss%20%28w%29o%23rd%2f1%2ax%2by~",  # with small digits
    ],
)
def test_forms_in_urls(encoded: str) -> None:
    assert Mask(["pa!ss (w)o#rd/1*x+y~"]).text(f"https://host/?key={encoded}&b=1") == "https://host/?key=***&b=1"


def test_base64_that_is_wrapped() -> None:
    secret = "".join(random.Random(1).choices("abcdefgh", k=200))
    wrapped = base64.encodebytes(secret.encode()).decode().splitlines()
    mask = Mask([secret])
    assert [mask.text(line) for line in wrapped] == ["***"] * len(wrapped)


def test_what_is_not_masked() -> None:
    mask = Mask(["", "  ", "abc", "12345"])
    assert not mask.finds("abc  and \n 1234")
    record = Record(0, {"step": 12345, "note": "12345"}, etimes={"iteration": 12345})
    plain = masked(record, mask)
    assert plain.values == {"step": 12345, "note": "***"}
    assert plain.etimes == {"iteration": 12345}
    assert Mask([]).text("abc") == "abc"


def test_raw_bytes_of_a_flood() -> None:
    mask = Mask(["s3cr3t-välue", "\udcff\udcfebytes"])
    assert mask.raw("a s3cr3t-välue\n".encode() + b"\xff\xfebytes\n\xff") == b"a ***\n***\n\xff"


def test_a_secret_that_holds_another_is_masked_whole() -> None:
    assert Mask(["secret", "my-secret-key"]).text("my-secret-key, secret") == "***, ***"
