"""The Kubernetes engine: an attempt's objects in, what the API server says of them out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from weft_core.engine import Capacity, LaunchRefused, Observation, gpu_type_fits
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.kubernetes import capacity, names, runs
from weft_workers.engines.kubernetes.client import METADATA, METADATA_LIST, Cluster, Json, Refused
from weft_workers.engines.kubernetes.details import Details
from weft_workers.engines.kubernetes.launching import Launcher, taken_back
from weft_workers.engines.kubernetes.stopping import Stopper, namespaces
from weft_workers.engines.kubernetes.watch import Mirror

_PROBE = "weft-probe"  # no pod has this name: asking for it shows whether the server can answer
_DELETED_KEPT = 3600.0  # seconds that a pod which vanished is remembered while its run is there


class KubernetesEngine:
    """Learners as pods of a cluster.

    Args:
        repository: prefix of the catalogue's image references.

    Raises:
        ValueError: the settings can't be.
    """

    def __init__(self, name: str, settings: KubernetesSettings, repository: str, installation_id: str) -> None:
        names.check_namespace(settings.namespace)
        if settings.kubeconfig is not None and not settings.kubeconfig.expanduser().is_file():
            raise ValueError(f"engine {name}: there is no kubeconfig {settings.kubeconfig}")
        self.name = name
        self._settings = settings
        self._own = names.own_labels(name, installation_id)
        self._scattered = names.per_project(settings.namespace)
        self._cluster = Cluster(name, settings)
        self._launcher = Launcher(name, settings, repository, self._cluster)
        self._stopper = Stopper(self._cluster, lambda node: self._nodes_by_name().get(node), bool(settings.queue))
        self._details = Details(self._cluster, settings.queue or "")
        self._lock = threading.Lock()
        self._deleted: dict[str, tuple[float, Json]] = {}
        chosen = {"label_selector": names.selector(self._own)}
        where = () if self._scattered else (settings.namespace,)
        self._pods = Mirror(
            self._cluster,
            "pods",
            _list_call("pod", self._scattered),
            *where,
            trim=runs.trim_pod,
            on_deleted=self._remember,
            options=chosen,
        )
        self._secrets = Mirror(
            self._cluster,
            "secrets",
            _list_call("secret", self._scattered),
            *where,
            trim=runs.trim_secret,
            accept=(METADATA_LIST, METADATA),
            options=chosen,
        )
        self._nodes = Mirror(self._cluster, "nodes", "list_node", trim=capacity.trim_node)
        self._everybody = Mirror(
            self._cluster,
            "pods of all namespaces",
            "list_pod_for_all_namespaces",
            trim=capacity.trim_pod,
            options={"field_selector": "status.phase!=Succeeded,status.phase!=Failed"},
        )

    # --- the contract with the reconciler ---

    def launch(self, spec: LaunchSpec) -> None:
        names.check_run_name(spec.run_name)
        created: list[Json] = []
        try:
            gpu_types = self._gpu_types(spec)
            secret = self._launcher.secret(spec)
            self._secrets.note([secret])
            self._launcher.policy(spec, secret)
            for rank in range(spec.learners):
                created.append(self._launcher.pod(spec, rank, secret, gpu_types))
                self._pods.note(created[-1:])
        except Refused as error:
            refusal = self._launcher.refused(error, spec)
            if not isinstance(refusal, LaunchRefused):
                # All or nothing: half a gang must not hold what another one waits for.
                taken_back(lambda: self.stop(spec.run_name, timedelta(0)))
            raise refusal from error

    def observe(self) -> Mapping[str, Observation]:
        self._probe()
        patience = self._settings.timeout
        secrets, pods = self._secrets.objects(patience), self._pods.objects(patience)
        nodes = {node["metadata"]["name"]: node for node in self._nodes.objects(patience)}
        now = datetime.now(UTC)
        self._details.round({pod["metadata"]["uid"] for pod in pods})
        return runs.observe(
            secrets,
            pods,
            self._vanished({names.label(one, names.RUN) for one in secrets}),
            nodes,
            now,
            event=lambda pod: self._details.event(pod, now),
            held=self._details.held,
        )

    def stop(self, run_name: str, grace: timedelta) -> None:
        names.check_run_name(run_name)
        for namespace in self._namespaces(run_name):
            self._stop(namespace, run_name, grace)

    def capacity(self) -> Capacity:
        self._probe()
        nodes, pods = self._nodes.objects(self._settings.timeout), self._everybody.objects(self._settings.timeout)
        return capacity.capacity(self.name, self._settings, nodes, pods, self._own)

    def close(self) -> None:
        """End the threads; those of a process end with it."""
        for mirror in (self._pods, self._secrets, self._nodes, self._everybody):
            mirror.close()

    # --- launch ---

    def _gpu_types(self, spec: LaunchSpec) -> list[str]:
        """The values of the GPU type's label that fit what is asked; where no node has any yet, what is asked."""
        asked = spec.resources.gpu_type
        if not asked or not spec.resources.gpus:
            return []
        label = self._settings.gpu_type_label
        nodes = self._nodes.objects(self._settings.timeout)
        there = {(node["metadata"]["labels"] or {}).get(label) for node in nodes} - {None}
        return sorted(one for one in there if one and gpu_type_fits(asked, one)) or [asked]

    # --- observe ---

    def _probe(self) -> None:
        """Ask the server something small: a watch that says nothing does not tell whether it lives."""
        namespace = names.fill(self._settings.namespace, "probe")
        try:
            self._cluster.get("read_namespaced_pod", _PROBE, namespace)
        except Refused as error:
            if error.status != 404:
                raise self._cluster.unreachable(str(error)) from error

    def _nodes_by_name(self) -> dict[str, Json]:
        return {node["metadata"]["name"]: node for node in self._nodes.objects(self._settings.timeout)}

    def _remember(self, pod: Json) -> None:
        with self._lock:
            self._deleted[pod["metadata"]["uid"]] = time.monotonic(), pod

    def _vanished(self, runs_there: set[str]) -> list[Json]:
        """The last of pods that somebody else deleted: their runs' Secrets are still there."""
        oldest = time.monotonic() - _DELETED_KEPT
        with self._lock:
            self._deleted = {
                uid: (at, pod)
                for uid, (at, pod) in self._deleted.items()
                if at > oldest and names.label(pod, names.RUN) in runs_there
            }
            return [pod for _, pod in self._deleted.values()]

    # --- stop ---

    def _namespaces(self, run_name: str) -> list[str]:
        """Where a run's objects are."""
        if not self._scattered:
            return [self._settings.namespace]
        chosen = names.selector({**self._own, names.RUN: run_name})
        if known := _of_run((*self._secrets.known(), *self._pods.known()), run_name):
            return namespaces(known)
        found: list[Json] = []
        for kind in ("secret", "pod"):
            found += self._cluster.list(_list_call(kind, True), label_selector=chosen)[0]
        return namespaces(found)

    def _stop(self, namespace: str, run_name: str, grace: timedelta) -> None:
        known = {one["metadata"]["uid"] for one in _of_run(self._pods.known(), run_name)}
        chosen = names.selector({**self._own, names.RUN: run_name})
        answer, now = self._cluster.get_dated("list_namespaced_pod", namespace, label_selector=chosen)
        pods = answer["items"]
        self._pods.note(pods)
        self._pods.gone(known - {pod["metadata"]["uid"] for pod in pods})
        if self._settings.network_policies:
            self._stopper.keep_policy(namespace, run_name, pods)
        for pod in pods:
            self._stopper.end(pod, now, grace)
        self._stopper.forget(namespace, run_name)
        self._secrets.gone(one["metadata"]["uid"] for one in _of_run(self._secrets.known(), run_name))
        self._stopper.release(namespace, run_name, pods)


def _of_run(found: Iterable[Json], run_name: str) -> list[Json]:
    return [one for one in found if names.label(one, names.RUN) == run_name]


def _list_call(kind: str, everywhere: bool) -> str:
    return f"list_{kind}_for_all_namespaces" if everywhere else f"list_namespaced_{kind}"
