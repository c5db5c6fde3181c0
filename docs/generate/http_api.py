"""``http-api.md``: every operation of the HTTP API and its data, from the OpenAPI document of the application."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from docs.generate.markdown import blocks, code, prose, table
from docs.generate.unset import unset_settings

from weft_api.app import create_app
from weft_core.settings import S3Settings

Json = Mapping[str, Any]

_INTRO = """
The base of all paths is the URL of the API. While `weft up` runs, `http://127.0.0.1:8080/docs` shows the same reference
as a page on which calls can be tried, and `/openapi.json` is the OpenAPI document that both come from.

- **Signing in.** Send `Authorization: Bearer TOKEN`. A token belongs to one user in one project
  ([Users, projects, quotas](../projects.md)). Browsers use a session cookie instead.
- **Errors** are `application/problem+json` (RFC 9457). `code` is stable, and `detail` says what is wrong. The lists of
  errors below show the status and the code. Any operation can also answer 400 `invalid_request` and 500 `internal`, and
  any that requires a token 401 `unauthenticated`.
- **Repetition.** An operation with the header `Idempotency-Key` takes effect once for each key: a repeated request gets
  the first answer.
- **Pages.** `next_cursor` of an answer is the `cursor` of the next request. On the last page it is `null`.

Not in this list are the WebSocket of logs ([Logs](../logs.md#reading)) and FfDL's API under `/v1`
([Coming from FfDL](../from-ffdl.md)).
"""
_ABOUT = {
    "learner": "The agents of learners call these operations, with the token of their attempt. They are not meant for "
    "other programs.",
    "health": "These operations require no token.",
}
_HEADINGS = {"health": "Health and metrics of the service"}
_EVERYWHERE = ("400 invalid_request", "401 unauthenticated", "500 internal")
_METHODS = ("get", "head", "post", "put", "patch", "delete")


def page() -> str:
    document = openapi()
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                by_tag[operations[method]["tags"][0]].append(_operation(method, path, operations[method]))
    parts = ["# The HTTP API", _INTRO]
    for tag in (entry["name"] for entry in document["tags"]):
        parts += [f"## {_HEADINGS.get(tag, tag.capitalize())}", _ABOUT.get(tag, ""), *by_tag[tag]]
    schemas = document["components"]["schemas"]
    parts += [
        "## Data",
        "The fields of requests and answers, by the names that the operations use.",
        *_schemas(schemas),
    ]
    return blocks(parts)


def openapi() -> Json:
    """The application's OpenAPI document. It connects to nothing."""
    store = S3Settings(endpoint="http://127.0.0.1:1", access_key="none")
    return create_app(unset_settings(s3=store)).openapi()


def _operation(method: str, path: str, operation: Json) -> str:
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    return blocks(
        [
            f"### {code(f'{method.upper()} {path}')}",
            _with_stop(operation["summary"]),
            _paragraphs(operation.get("description", "")),
            table(("parameter", "type", "meaning"), parameters) if parameters else "",
            table(("request, answers", "content"), _bodies(operation)),
        ]
    )


def _parameter(parameter: Json) -> tuple[str, ...]:
    place = "" if parameter["in"] == "query" else f" ({parameter['in']})"
    required = "" if parameter["in"] == "path" or not parameter.get("required") else ", required"
    return (
        code(parameter["name"]) + place,
        _type(parameter["schema"]) + required,
        prose(parameter.get("description", "")),
    )


def _bodies(operation: Json) -> list[tuple[str, str]]:
    """The request's body, the answers, and the errors besides those that every operation has."""
    rows = []
    if "requestBody" in operation:
        rows.append(("body", _content(operation["requestBody"]["content"])))
    errors: list[str] = []
    for status, answer in operation["responses"].items():
        if status < "400":
            rows.append((status, _content(answer.get("content", {})) or "no body"))
            continue
        errors += [f"{status} {name}" for name in _codes(answer)] or [status]
    rows.append(
        ("errors", ", ".join(code(error) for error in errors if error not in _EVERYWHERE) or "none besides the usual")
    )
    return rows


def _codes(answer: Json) -> list[str]:
    contents = answer.get("content", {}).get("application/problem+json", {})
    return list(contents.get("examples", {}))


def _content(content: Json) -> str:
    """The type of a body: a schema's name, or the media type of its bytes."""
    return " or ".join(
        _type(body["schema"]) if kind == "application/json" and body.get("schema") else code(kind)
        for kind, body in content.items()
    )


def _schemas(schemas: Json) -> Iterable[str]:
    for name, schema in sorted(schemas.items()):
        yield f"### {code(name)}"
        yield _paragraphs(schema.get("description", ""))
        if "enum" in schema:
            yield "One of " + ", ".join(code(value) for value in schema["enum"]) + "."
        required = schema.get("required", ())
        rows = [
            (
                code(field) + ("" if field in required else " (optional)"),
                _type(inner),
                prose(inner.get("description", "")),
            )
            for field, inner in schema.get("properties", {}).items()
        ]
        if rows:
            described = any(row[2] for row in rows)
            head = ("field", "type", "meaning") if described else ("field", "type")
            yield table(head, [row[: len(head)] for row in rows])


def _type(schema: Json) -> str:
    """A schema in words, with links to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{code(name)}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[several]))
    if "enum" in schema or "const" in schema:
        return " or ".join(code(str(value)) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if kind == "string" and schema.get("format") == "date-time":
        return "time"
    return str(kind)


def _paragraphs(text: str) -> str:
    return blocks(_with_stop(prose(part)) for part in re.split(r"\n\s*\n", text) if part.strip())


def _with_stop(text: str) -> str:
    return text if text.endswith((".", "?", "!", ":")) else f"{text}."
