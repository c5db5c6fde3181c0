"""The OpenAPI document, and the page that shows it."""

from __future__ import annotations

import re
from typing import Any

from tests.api.conftest import Api, Person

_OPEN = {
    "post /api/v1/login",
    "post /api/v1/session",
    "post /api/v1/session/provider",
    "post /api/v1/device",
    "post /api/v1/device:token",
    "get /api/v1/signin",
    "get /api/v1/schema/manifest",
}


def test_every_operation_is_described(api: Api) -> None:
    chapters = {tag["name"] for tag in api.openapi["tags"]}
    for path, operations in api.openapi["paths"].items():
        for method, operation in operations.items():
            name = f"{method} {path}"
            assert operation["summary"], name
            assert set(operation["tags"]) <= chapters, name
            assert "422" not in operation["responses"], name
            for status, answer in operation["responses"].items():
                if status >= "400" and path != "/readyz":
                    assert "application/problem+json" in answer["content"], f"{name} {status}"
            if path.startswith("/api/v1/") and name not in _OPEN:
                assert operation["security"], name


def test_bodies_and_answers_have_examples(api: Api) -> None:
    schemas = api.openapi["components"]["schemas"]
    for path, operations in api.openapi["paths"].items():
        for method, operation in operations.items():
            bodies = [operation.get("requestBody", {})]
            bodies += [answer for status, answer in operation["responses"].items() if status < "400"]
            for body in bodies:
                json_body = body.get("content", {}).get("application/json", {}).get("schema", {})
                if "example" in body.get("content", {}).get("application/json", {}):
                    continue
                for name in re.findall(r"#/components/schemas/([A-Za-z]+)", str(json_body)):
                    _has_example(schemas, name, f"{method} {path}")


def _has_example(schemas: dict[str, Any], name: str, where: str) -> None:
    """Its own, or those of what it is a list of."""
    schema = schemas[name]
    nested = re.findall(r"#/components/schemas/([A-Za-z]+)", str(schema.get("properties")))
    assert "examples" in schema or any("examples" in schemas[part] for part in nested), f"{where}: {name}"


def test_the_document_is_complete(api: Api) -> None:
    refs = set(re.findall(r"#/components/schemas/([A-Za-z0-9_]+)", str(api.openapi)))
    assert refs <= set(api.openapi["components"]["schemas"])


def test_the_page_needs_nothing_from_elsewhere(api: Api) -> None:
    http = api.client()
    page = http.get("/docs")
    assert page.status_code == 200
    assert "//" not in page.text, "no address of another host"
    for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        answer = http.get("/" + path)
        assert answer.status_code == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
    start = http.get("/docs/start.js").text
    document = http.get("/" + re.findall(r'url: "([^"]+)"', start)[0]).json()
    assert document["openapi"].startswith("3.0"), "Swagger UI 4 renders nothing else"
    assert "'null'" not in str(document["components"])
    assert http.get("/openapi.json").json()["openapi"].startswith("3.1")


def test_answers_have_safe_headers(api: Api, ann: Person) -> None:
    for answer in (ann.http.get("/api/v1/me"), ann.http.get("/nothing"), api.client().get("/api/v1/me")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]
    refused = ann.http.patch("/api/v1/jobs")
    assert (refused.json()["code"], refused.headers["allow"]) == ("method_not_allowed", "GET, POST")
    assert ann.http.get("/nothing").json()["code"] == "not_found"


def test_metrics(ann: Person) -> None:
    ann.submit()
    text = ann.http.get("/metrics").text
    assert re.search(r'weft_jobs\{state="QUEUED"\} [1-9]', text)
    assert 'weft_api_request_seconds_count{method="POST",route="/api/v1/jobs",status="201"}' in text
    assert "job-" not in text, "templates, not paths"
