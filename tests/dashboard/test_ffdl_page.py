"""FfDL's own web page, from another origin: Chromium makes the calls of its ``DlaasService`` as the page makes them."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page
from tests.dashboard.conftest import Site
from tests.e2e.stack import Stack

PROGRAM = """
import os
for step in range(1, 41):
    print(f"step {step}", flush=True)
with open(os.path.join(os.environ["LOG_DIR"], "evaluation-metrics.txt"), "w") as file:
    file.write('{"grouplabel": "train", "etimes": {"iteration": {"type": 2, "value": "1"}},'
               ' "values": {"loss": {"type": 3, "value": "0.5"}}}\\n')
"""
MANIFEST = """
name: from-the-page
learners: 1
cpus: 0.5
memory: 512MB
framework: {name: python, version: "3.11", command: python program.py}
data_stores: [{id: s3, datastore: default, training_results: {container: results}}]
evaluation_metrics: {type: emetrics_file}
"""
CALL = """async ([url, token, method, files]) => {
  // As the page signs in: the user's name is the token. Its version parameter ends in a quotation mark and a plus sign.
  const headers = {
    'X-Watson-Userinfo': 'bluemix-instance-id=' + token,
    'Authorization': 'Basic ' + btoa(token + ':dummy'),
    'X-Watson-Authorization-Token': 'abcdef',
  }
  let body
  if (files) {
    body = new FormData()
    for (const [name, text] of Object.entries(files))
      body.append(name, new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]), name)
  }
  const answer = await fetch(url, {method, headers, body})
  return {status: answer.status, location: answer.headers.get('Location'), body: await answer.json()}
}"""

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def page(browser: Browser, other_site: str) -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(other_site)
        yield page


@pytest.fixture
def call(page: Page, site: Site) -> Call:
    def call(path: str, method: str = "GET", files: dict[str, bytes] | None = None) -> dict[str, Any]:
        encoded = {name: base64.b64encode(data).decode() for name, data in (files or {}).items()}
        answer = page.evaluate(CALL, [site.url + path, site.token, method, encoded or None])
        assert isinstance(answer, dict)
        return answer

    return call


def test_the_page_trains_follows_and_deletes(call: Call, stack: Stack) -> None:
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("program.py", PROGRAM)
    files = {"manifest": MANIFEST.encode(), "model_definition": code.getvalue()}
    made = call("/v1/models?version=2017-02-13", "POST", files)
    assert made["status"] == 201, made
    job = made["body"]["model_id"]
    assert made["location"].endswith(f"/v1/models/{job}"), "the page may read the header"

    stack.client.job(job).wait(timeout=900)
    model = call(f"/v1/models/{job}?version=2017-02-13")["body"]
    assert model["training"]["training_status"]["status"] == "COMPLETED"
    assert job in [model["model_id"] for model in call("/v1/models?version=2017-02-13")["body"]["models"]]

    def read(kind: str, position: int, size: int) -> list[dict[str, Any]]:
        query = f'version=2017-02-13"+&pos={position}&pagesize={size}&since_time='
        answer = call(f"/v1/logs/{job}/{kind}?{query}")
        assert answer["status"] == 200, answer
        return list(answer["body"]["models"])

    # The log opens at its end; PgUp goes back by one page from there, Home to the first line.
    last = read("loglines", -1, 20)
    assert [entry["line"].strip() for entry in last] == [f"step {step}" for step in range(21, 41)]
    assert [entry["meta"]["rindex"] for entry in last] == list(range(21, 41))
    assert [entry["line"].strip() for entry in read("loglines", -3, 3)] == ["step 38", "step 39", "step 40"]
    assert read("loglines", 0, 999)[0]["line"].strip() == "step 1"
    [record] = read("emetrics", 0, 10)
    assert record["grouplabel"] == "train"
    assert record["etimes"]["iteration"] == {"type": "INT", "value": "1"}
    assert record["values"]["loss"] == {"type": "FLOAT", "value": "0.5"}
    assert float(record["meta"]["time"]) > 0

    assert call(f"/v1/models/{job}?version=2017-02-13", "DELETE")["status"] == 200
    assert call(f"/v1/models/{job}?version=2017-02-13")["status"] == 404, "the page may read errors"


def test_other_pages_read_nothing(browser: Browser, site: Site, other_site: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(other_site.replace("localhost", "127.0.0.1"))
        with pytest.raises(Error, match="Failed to fetch"):
            page.evaluate(CALL, [f"{site.url}/v1/models?version=2017-02-13", site.token, "GET", None])
        # Weft's own API is for no other site at all.
        page.goto(other_site)
        with pytest.raises(Error, match="Failed to fetch"):
            page.evaluate(CALL, [f"{site.url}/api/v1/jobs", site.token, "GET", None])
