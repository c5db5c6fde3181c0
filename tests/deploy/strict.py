"""Whether an object is one of Kubernetes': against the models of the official client, which know the newest API.

Stricter than the API server: a field that the model does not have is an error, as is a value of another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client
from pydantic import BaseModel, ConfigDict, Field, ValidationError

_API_VERSION = re.compile(r"^(?:(?P<group>[^/]+)/)?(?P<version>v\d+)$")
_LABEL = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")
_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")


class _Operator(BaseModel):
    """What the client has no model for: the fields of the Prometheus Operator's that the chart uses."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Authorization(_Operator):
    type: str
    credentials: client.V1SecretKeySelector


class _Endpoint(_Operator):
    port: str
    path: str
    interval: str
    scrape_timeout: str = Field(alias="scrapeTimeout")
    authorization: _Authorization | None = None


class _Namespaces(_Operator):
    match_names: list[str] = Field(alias="matchNames")


class _ServiceMonitorSpec(_Operator):
    selector: client.V1LabelSelector
    namespace_selector: _Namespaces = Field(alias="namespaceSelector")
    endpoints: list[_Endpoint]


class _ServiceMonitor(_Operator):
    api_version: str = Field(alias="apiVersion")
    kind: str
    metadata: client.V1ObjectMeta
    spec: _ServiceMonitorSpec


class _PodMonitorSpec(_Operator):
    selector: client.V1LabelSelector
    namespace_selector: _Namespaces = Field(alias="namespaceSelector")
    pod_metrics_endpoints: list[_Endpoint] = Field(alias="podMetricsEndpoints")


class _PodMonitor(_Operator):
    api_version: str = Field(alias="apiVersion")
    kind: str
    metadata: client.V1ObjectMeta
    spec: _PodMonitorSpec


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object, each with its path; empty if nothing is."""
    return list(_problems(document))


def _problems(document: dict[str, Any]) -> Iterator[str]:
    model = model_of(document["apiVersion"], document["kind"])
    if model is None:
        yield f"no such kind: {document['apiVersion']} {document['kind']}"
        return
    try:
        read: Any = model.model_validate(document)  # `to_dict` is the client's own, not BaseModel's
    except ValidationError as error:
        for problem in error.errors():
            yield f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (found {problem['input']!r})"
        return
    if issubclass(model, _Operator):
        return
    # The models also take Python's names (`api_group`), which Kubernetes does not.
    if (written := _without_null(read.to_dict(serialize=True))) != document:
        yield f"read as something else: {written}"
    metadata = document["metadata"]
    if not _NAME.match(metadata.get("name", "")):
        yield f"metadata.name: {metadata.get('name')!r} is no name"
    for key, value in metadata.get("labels", {}).items():
        if not _LABEL.match(value):
            yield f"metadata.labels.{key}: {value!r} is no value of a label"


def model_of(api_version: str, kind: str) -> type[BaseModel] | None:
    """('apps/v1', 'Deployment') → V1Deployment; None where that group and version has no such kind."""
    if (api_version, kind) == ("monitoring.coreos.com/v1", "ServiceMonitor"):
        return _ServiceMonitor
    if (api_version, kind) == ("monitoring.coreos.com/v1", "PodMonitor"):
        return _PodMonitor
    match = _API_VERSION.match(api_version)
    if match is None:
        return None
    version = match["version"].upper()
    # A model's name does not say its group; the class that creates such objects does.
    words = (match["group"] or "core").removesuffix(".k8s.io").split(".")
    api = getattr(client, "".join(word.title() for word in words) + f"{version}Api", None)
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
    if not any(hasattr(api, f"create_{scope}{snake}") for scope in ("namespaced_", "")):
        return None
    model: type[BaseModel] = getattr(client, version + kind)
    return model


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value
