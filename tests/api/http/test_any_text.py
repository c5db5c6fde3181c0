"""Text that Postgres can't store, at every place of every body: refused or replaced, never an error of the server's."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.conftest import Api, Person

_HALF, _NUL = "kept-\ud800-apart", "kept-\0-apart"
"""Half of a surrogate pair, which JSON's escapes can write, and NUL."""
_VALUES = {"job_id": "job-000000000000", "version": "1"}


def _bodies(api: Api) -> Iterator[tuple[str, str, Any]]:
    """Method, path and an example of each body of JSON that the OpenAPI document describes."""
    components = api.openapi["components"]["schemas"]
    for path, operations in sorted(api.openapi["paths"].items()):
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is not None:
                yield method.upper(), path, _example(content["schema"], components)


def _example(schema: dict[str, Any] | bool, components: dict[str, Any]) -> Any:
    """A value that has every property of ``schema``; True: any value is one."""
    if isinstance(schema, bool):
        return "text"
    if "$ref" in schema:
        return _example(components[schema["$ref"].rpartition("/")[2]], components)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _example(schema[key][0], components)
    if "properties" in schema:
        return {name: _example(value, components) for name, value in schema["properties"].items()}
    if "examples" in schema:
        return schema["examples"][0]
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "array":
        return [_example(schema.get("items", {}), components)]
    if kind == "object":
        return {"key": _example(schema.get("additionalProperties") or {}, components)}
    return {"string": "text", "integer": 1, "number": 1.0, "boolean": True}.get(kind or "", "text")


def _with(value: Any, text: str) -> Iterator[Any]:
    """``value``, again and again, with ``text`` in the place of another string, or of a key that users choose."""
    if isinstance(value, str):
        yield text
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from (value | {key: changed} for changed in _with(child, text))
        if set(value) == {"key"}:
            yield {text: value["key"]}
    elif isinstance(value, list):
        for number, child in enumerate(value):
            for changed in _with(child, text):
                yield [*value[:number], changed, *value[number + 1 :]]


@pytest.mark.parametrize("text", [_HALF, _NUL], ids=["surrogate", "nul"])
def test_no_text_is_an_error_of_the_servers(api: Api, root: Person, text: str) -> None:
    attempt = api.attempt(root.submit()["id"])
    instance = attempt.agents[0].instance
    attempt.agents[0].start()
    failed, asked = {}, 0
    for method, path, example in _bodies(api):
        learner = path.startswith("/api/v1/learner/")
        client = attempt.agents[0].http if learner else root.http
        names = {"project": root.project, "name": "nothing"} | _VALUES
        url = "/".join(names.get(part[1:-1], "nothing") if part[:1] == "{" else part for part in path.split("/"))
        body = copy.deepcopy(example)
        if learner and isinstance(body, dict):
            body |= {"rank": 0, "instance": instance}
        for changed in _with(body, text):
            content = json.dumps(changed)
            answer = client.request(method, url, content=content, headers={"Content-Type": "application/json"})
            asked += 1
            if answer.status_code >= 500:
                failed[f"{method} {path}", content] = (answer.status_code, answer.text[:300])
    assert failed == {}
    assert asked > 100


@pytest.mark.parametrize("text", [_HALF, _NUL], ids=["surrogate", "nul"])
@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("experiments/create", {"name": "%"}),
        ("experiments/set-experiment-tag", {"experiment_id": "0", "key": "%", "value": "%"}),
        ("runs/create", {"experiment_id": "0", "run_name": "%", "tags": [{"key": "%", "value": "%"}]}),
        ("runs/log-parameter", {"run_id": "%", "key": "%", "value": "%"}),
        ("runs/log-metric", {"run_id": "RUN", "key": "%", "value": 1, "timestamp": 1}),
        ("runs/set-tag", {"run_id": "RUN", "key": "%", "value": "%"}),
        ("runs/search", {"experiment_ids": ["0"], "filter": "tags.a = '%'", "order_by": ["%"]}),
        ("logged-models", {"experiment_id": "0", "name": "%", "tags": [{"key": "%", "value": "%"}]}),
    ],
)
def test_nor_is_it_one_in_mlflows_calls(ann: Person, call: str, body: dict[str, Any], text: str) -> None:
    prefix = "/api/2.0/mlflow"
    run = ann.http.post(f"{prefix}/runs/create", json={"experiment_id": "0"}).json()["run"]["info"]["run_id"]
    content = json.dumps(body).replace("RUN", run).replace("%", json.dumps(text)[1:-1])
    answer = ann.http.post(f"{prefix}/{call}", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text
