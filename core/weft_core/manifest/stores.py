"""``data_stores``: which of an entry's keys go together, and the credentials lifted out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.models import (
    Credentials,
    DataStore,
    ModelReference,
    MountConnection,
    Place,
    S3Connection,
    TrainingData,
    TrainingResults,
)

_MOUNT_KEYS = ("name", "path")
_S3_KEYS = ("auth_url", "user_name", "password", "session_token", "ca", "region", "domain_name", "project_id")
_PLACES = ("training_data", "training_results", "pretrained_model", "wheels")


def resolve_stores(
    entries: list[Any], findings: Findings, known: Mapping[tuple[str, str], Credentials]
) -> tuple[list[DataStore], dict[str, Credentials]]:
    """The data stores in canonical form, and their credentials by id; problems are noted in ``findings``.

    Args:
        known: for connections that have none of their own, by the data store's id and the endpoint: no other one gets
            to see them.
    """
    stores: list[DataStore] = []
    credentials: dict[str, Credentials] = {}
    seen: dict[str, str] = {}  # what may be there once in a manifest → where it is
    for index, entry in enumerate(entries):
        path = f"data_stores[{index}]"
        if entry is INVALID:
            continue
        identity = entry.get("id", f"store-{index + 1}")
        _once(f"id {identity!r}", f"{path}.id", seen, findings)
        if "training_results" in entry:
            _once("training_results", f"{path}.training_results", seen, findings)
        for use in [use for use in ("pretrained_model", "model") if use in entry][:1]:
            _once("a pretrained model", f"{path}.{use}", seen, findings)
        _check_places(entry, path, findings)
        endpoint = entry.get("connection", {}).get("auth_url", "").rstrip("/")
        connection, mount, opened = _connection(entry, path, findings, known.get((identity, endpoint)))
        if findings.has(path):
            continue
        if opened:
            credentials[identity] = opened
        stores.append(_store(identity, entry, connection, mount))
    return stores, credentials


def _once(what: str, path: str, seen: dict[str, str], findings: Findings) -> None:
    if what in seen:
        findings.add(path, f"{what} is given a second time, first at {seen[what]}: only one is accepted")
    else:
        seen[what] = path


def _check_places(entry: dict[str, Any], path: str, findings: Findings) -> None:
    pretrained = entry.get("pretrained_model", {})
    if "model" in entry and pretrained:
        findings.add(f"{path}.model", "pretrained_model is there as well: leave out either of the two")
    if "model" in pretrained and ("container" in pretrained or "prefix" in pretrained):
        findings.add(
            f"{path}.pretrained_model", "a model of the registry has no container: leave out either of the two"
        )
    if "pretrained_model" in entry and not pretrained.keys() & {"model", "container"}:
        findings.add(f"{path}.pretrained_model", "missing: expected a container, or a model NAME@VERSION")
    _check_results(entry, path, findings)
    if "wheels" in entry and entry.get("type") == "mount_volume":
        findings.add(
            f"{path}.wheels", "wheels come from S3 or with the code (framework.wheels), not from a mount_volume"
        )
    if entry.get("type") == "mount_volume":
        return
    for use in _PLACES:
        container = entry.get(use, {}).get("container", "")
        if "/" in container:
            bucket, _, prefix = container.partition("/")
            message = (
                f"expected a container without '/', found {container!r}: write container: {bucket}, prefix: {prefix}"
            )
            findings.add(f"{path}.{use}.container", message, found=repr(container))


def _check_results(entry: dict[str, Any], path: str, findings: Findings) -> None:
    """Results that become a model's version may stay in the installation's own store, and only they."""
    results = entry.get("training_results")
    if results is None or "container" in results:
        return
    where = f"{path}.training_results"
    if findings.has(f"{where}.container"):
        return
    if "model" not in results:
        findings.add(
            f"{where}.container", "missing: expected a container name, or model: NAME to keep them in Weft's store"
        )
    elif results.get("prefix"):
        findings.add(f"{where}.prefix", "there is no container that it could be in")
    elif "datastore" in entry or "connection" in entry:
        findings.add(
            f"{where}.container",
            "missing: expected the container for the results, or their model in an entry of its own without a data "
            "store, to keep them in Weft's store",
        )


def _connection(
    entry: dict[str, Any], path: str, findings: Findings, known: Credentials | None
) -> tuple[S3Connection | None, MountConnection | None, Credentials | None]:
    """Exactly one way to the store: a mount, a connection with credentials, or the name of one kept on the server."""
    given = entry.get("connection")
    mounted = entry.get("type") == "mount_volume"
    if "datastore" in entry:
        if given is not None:
            findings.add(f"{path}.connection", "datastore is there as well: leave out either of the two")
        if mounted:
            findings.add(f"{path}.datastore", "a mount_volume has a connection {type: host_mount, name, path}")
        return None, None, None
    if given is None:
        if not findings.has(f"{path}.connection") and not _only_models(entry):
            findings.add(
                f"{path}.connection",
                "missing: expected connection: {auth_url, user_name, password}, or datastore: NAME",
            )
        return None, None, None
    if known and not mounted and not {"user_name", "password"} <= given.keys():
        given = {key: value for key, value in asdict(known).items() if value is not None} | given
    needed, foreign = (("path",), _S3_KEYS) if mounted else (("auth_url", "user_name", "password"), _MOUNT_KEYS)
    for key in needed:
        if key not in given and not findings.has(f"{path}.connection.{key}"):
            findings.add(
                f"{path}.connection.{key}", f"missing: a data store of type {entry.get('type', 's3')} needs it"
            )
    for key in foreign:
        if key in given:
            findings.add(f"{path}.connection.{key}", f"not accepted for a data store of type {entry.get('type', 's3')}")
    if findings.has(path):
        return None, None, None
    if mounted:
        return None, MountConnection(name=given.get("name"), path=given["path"]), None
    opened = Credentials(given["user_name"], given["password"], given.get("session_token"), given.get("ca"))
    fields = {key: given[key] for key in ("region", "domain_name", "project_id") if key in given}
    return S3Connection(auth_url=given["auth_url"].rstrip("/"), **fields), None, opened


def _only_models(entry: dict[str, Any]) -> bool:
    """Whether an entry names models of the registry and nothing that lies in a store of the user's."""
    pretrained, results = entry.get("pretrained_model", {}), entry.get("training_results", {})
    named = "model" in entry or "model" in pretrained or "model" in results
    needs_store = entry.keys() & {"training_data", "wheels"} or "container" in pretrained or "container" in results
    return named and not needs_store


def _store(
    identity: str, entry: dict[str, Any], connection: S3Connection | None, mount: MountConnection | None
) -> DataStore:
    pretrained = dict(entry.get("pretrained_model", {}))
    reference = pretrained.pop("model", None) or entry.get("model")
    name, _, version = (reference or "").partition("@")
    data = entry.get("training_data")
    results, wheels = entry.get("training_results"), entry.get("wheels")
    return DataStore(
        id=identity,
        type=entry.get("type", "s3"),
        connection=connection,
        datastore=entry.get("datastore"),
        mount=mount,
        training_data=TrainingData(**_trimmed(data)) if data else None,
        training_results=TrainingResults(**_trimmed(results)) if results else None,
        pretrained_model=Place(**_trimmed(pretrained)) if pretrained else None,
        wheels=Place(**_trimmed(wheels)) if wheels else None,
        model=ModelReference(name=name, version=version) if reference else None,
    )


def _trimmed(place: dict[str, Any]) -> dict[str, Any]:
    """No slash at a prefix's ends, so that it can be joined."""
    return place | {"prefix": "/".join(part for part in place.get("prefix", "").split("/") if part)}
