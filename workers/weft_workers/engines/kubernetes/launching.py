"""Creating an attempt's objects, or adopting them where they are there already."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from weft_core.engine import EngineUnreachable, LaunchRefused
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.kubernetes import names, objects
from weft_workers.engines.kubernetes.client import Cluster, Json, Refused
from weft_workers.engines.kubernetes.network import Egress

Hosts = dict[str, list[str]]

_logger = logging.getLogger(__name__)

_ACCOUNT = 5.0  # seconds until a new namespace has its service account
_AGAIN = 0.2
_REFUSED = "S101"  # FfDL's code: could not be deployed


class Launcher:
    """Makes attempts on a cluster."""

    def __init__(self, engine: str, settings: KubernetesSettings, repository: str, cluster: Cluster) -> None:
        self._engine, self._settings, self._repository = engine, settings, repository
        self._cluster = cluster

    def secret(self, spec: LaunchSpec) -> Json:
        """The attempt's Secret, made unless it is there. It owns all other objects, so an object that is created late,
        after the Secret has been deleted, is collected."""
        namespace = names.fill(self._settings.namespace, spec.project_id)
        wanted = objects.secret(self._engine, spec)
        try:
            return self._create("secret", namespace, wanted, spec)
        except Refused as error:
            if error.status != 404:
                raise
        self._make_namespace(namespace, spec)
        return self._create("secret", namespace, wanted, spec)

    def present(self, spec: LaunchSpec) -> Json:
        """The Secret of an attempt that has been launched. Raises Refused (404) when it is not there (any more)."""
        namespace = names.fill(self._settings.namespace, spec.project_id)
        there: Json = self._cluster.get("read_namespaced_secret", spec.run_name, namespace)
        self._check_adopted("secret", there, objects.secret(self._engine, spec), None)
        return there

    def policy(self, spec: LaunchSpec, owner: Json, reached: Egress) -> Hosts:
        """The attempt's NetworkPolicy, which has to be there before the pods are; the hosts that it opens."""
        wanted = objects.policy(self._engine, spec, owner, reached)
        return objects.hosts(self._create("network_policy", owner["metadata"]["namespace"], wanted, spec, owner))

    def hosts(self, spec: LaunchSpec, owner: Json) -> Hosts:
        """The hosts that the policy of a launched attempt opens."""
        there: Json = self._cluster.get("read_namespaced_network_policy", spec.run_name, owner["metadata"]["namespace"])
        return objects.hosts(there)

    def pod(self, spec: LaunchSpec, rank: int, owner: Json, gpu_types: list[str], hosts: Hosts) -> Json:
        """A learner's pod. A new namespace's service account may be a moment late."""
        wanted = objects.pod(self._engine, self._settings, self._repository, spec, rank, owner, gpu_types, hosts)
        deadline = time.monotonic() + _ACCOUNT
        while True:
            try:
                return self._create("pod", owner["metadata"]["namespace"], wanted, spec, owner)
            except Refused as error:
                if "serviceaccount" not in error.message.replace(" ", "").lower() or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN)

    def refused(self, error: Refused, spec: LaunchSpec) -> Exception:
        """The exception that a refusal means for the attempt."""
        message = _plain(error.message, spec)
        if error.status == 404:
            return self._cluster.unreachable(message)
        if error.status == 403 and re.search(r"exceeded quota|status unknown for quota", message):
            return EngineUnreachable(f"waiting for quota on engine {self._engine}: {message}")
        if error.status == 403 and re.search(r"being terminated|serviceaccount|service account", message):
            return self._cluster.unreachable(message)
        if error.status in (400, 403, 413, 422):
            return LaunchRefused(f"engine {self._engine} refuses the learners: {message}", _REFUSED)
        return self._cluster.unreachable(f"{message} ({error.status})")

    # --- create or adopt ---

    def _create(self, kind: str, namespace: str, wanted: Json, spec: LaunchSpec, owner: Json | None = None) -> Json:
        name = wanted["metadata"]["name"]
        try:
            return self._cluster.get(f"create_namespaced_{kind}", namespace, wanted)
        except Refused as error:
            if error.status != 409:
                raise
            reason = error.message
        try:
            there = self._cluster.get(f"read_namespaced_{kind}", name, namespace)
        except Refused as error:
            if error.status != 404:
                raise
            raise self._cluster.unreachable(reason) from error  # it went meanwhile: next time
        self._check_adopted(kind, there, wanted, owner)
        return there

    def _check_adopted(self, kind: str, there: Json, wanted: Json, owner: Json | None) -> None:
        """Check that the object with this name belongs to this very attempt, and is not being deleted."""
        metadata = there["metadata"]
        what = f"the {kind.replace('_', ' ')} {metadata['namespace']}/{metadata['name']}"
        for name in (*names.IDENTITY, names.ENGINE):
            expected, found = wanted["metadata"]["labels"][name], names.label(there, name)
            if found != expected:
                raise self._cluster.unreachable(
                    f"{what} is there, of another {name.removeprefix(names.PREFIX)} "
                    f"({found or 'not one of Weft'}, not {expected})"
                )
        if owner is None:
            if metadata.get("deletionTimestamp"):
                raise self._cluster.unreachable(f"{what} of an earlier try is still being deleted")
        elif owner["metadata"]["uid"] not in [reference["uid"] for reference in metadata.get("ownerReferences") or []]:
            raise self._cluster.unreachable(f"{what} of an earlier try is still there, about to be collected")

    def _make_namespace(self, name: str, spec: LaunchSpec) -> None:
        if not self._settings.create_namespaces:
            raise self._cluster.unreachable(
                f"there is no namespace {name}; make it, or let Weft do so (create_namespaces = true)"
            )
        try:
            self._cluster.get("create_namespace", objects.namespace(name, spec))
            _logger.info("made namespace %s", name)
        except Refused as error:
            if error.status != 409:
                raise self._cluster.unreachable(f"can't make namespace {name}: {error}") from error


def taken_back(undo: Callable[[], None]) -> None:
    """Remove the objects of an attempt that could not be created whole. If a removal fails here, a stop repeats it
    later."""
    try:
        undo()
    except (EngineUnreachable, Refused) as error:
        _logger.warning("could not take back a launch: %s", error)


def _plain(message: str, spec: LaunchSpec) -> str:
    """The server's message without the names of objects that a user does not know."""
    text = re.sub(rf'\S+ "{re.escape(spec.run_name)}[^"]*" is (forbidden|invalid): ', "", message)
    return " ".join(text.split())[:1000]
