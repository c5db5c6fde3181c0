"""The Kubernetes engine: it creates an attempt's objects, and reports what the API server says about them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from weft_core.engine import Capacity, LaunchRefused, Observation, gpu_type_fits
from weft_core.engine_settings import KubernetesSettings
from weft_core.launch import LaunchSpec
from weft_workers.engines.kubernetes import capacity, names, objects, runs
from weft_workers.engines.kubernetes.client import METADATA, METADATA_LIST, Cluster, Json, Refused
from weft_workers.engines.kubernetes.details import Details
from weft_workers.engines.kubernetes.launching import Launcher, taken_back
from weft_workers.engines.kubernetes.network import Egress
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
            raise ValueError(f"there is no kubeconfig {settings.kubeconfig}")
        self.name = name
        self.grows_runs = not settings.queue  # Kueue admits a group of pods once, with their number
        self._settings, self._repository, self._installation = settings, repository, installation_id
        self._views: dict[int, _View] = {}

    def launch(self, spec: LaunchSpec) -> None:
        names.check_run_name(spec.run_name)
        view = self._view()
        launcher = Launcher(self.name, self._settings, self._repository, view.cluster)
        try:
            gpu_types = self._gpu_types(view, spec)
            reached = self._egress(view, spec)  # before anything is made, as this may refuse the attempt
            secret = launcher.secret(spec)
            view.secrets.note([secret])
            hosts = launcher.policy(spec, secret, reached) if reached else {}
            for rank in range(spec.learners):
                view.pods.note([launcher.pod(spec, rank, secret, gpu_types, hosts)])
        except Refused as error:
            refusal = launcher.refused(error, spec)
            if not isinstance(refusal, LaunchRefused):
                # All or nothing: half a gang must not hold room that another gang waits for.
                taken_back(lambda: self.stop(spec.run_name, timedelta(0)))
            raise refusal from error

    def grow(self, spec: LaunchSpec, ranks: Sequence[int]) -> None:
        names.check_run_name(spec.run_name)
        if not self.grows_runs:
            raise LaunchRefused(
                f"engine {self.name}: Kueue's queue takes no more pods into a group that it has admitted"
            )
        view = self._view()
        launcher = Launcher(self.name, self._settings, self._repository, view.cluster)
        try:
            gpu_types = self._gpu_types(view, spec)
            secret = launcher.present(spec)
            hosts = launcher.hosts(spec, secret) if self._settings.network_policies else {}
            for rank in ranks:
                view.pods.note([launcher.pod(spec, rank, secret, gpu_types, hosts)])
        except Refused as error:
            raise launcher.refused(error, spec) from error

    def observe(self) -> Mapping[str, Observation]:
        view = self._view()
        view.probe()
        patience = self._settings.timeout
        secrets, pods = view.secrets.objects(patience), view.pods.objects(patience)
        nodes = {node["metadata"]["name"]: node for node in view.nodes.objects(patience)}
        now = datetime.now(UTC)
        view.details.round({pod["metadata"]["uid"] for pod in pods})
        return runs.observe(
            secrets,
            pods,
            view.vanished({names.label(secret, names.RUN) for secret in secrets}),
            nodes,
            now,
            event=lambda pod: view.details.event(pod, now),
            held=view.details.held,
        )

    def stop(self, run_name: str, grace: timedelta) -> None:
        names.check_run_name(run_name)
        view = self._view()
        for namespace in view.namespaces(run_name):
            self._stop(view, namespace, run_name, grace)

    def capacity(self) -> Capacity:
        view, patience = self._view(), self._settings.timeout
        view.probe()
        nodes, pods = view.nodes.objects(patience), view.everybody.objects(patience)
        return capacity.capacity(self.name, self._settings, nodes, pods, view.own)

    def close(self) -> None:
        """End the threads; those of a process end with it anyway."""
        if view := self._views.pop(os.getpid(), None):
            view.close()

    def _view(self) -> _View:
        """This process's own: threads and connections don't survive a fork."""
        here = os.getpid()
        view = self._views.get(here)
        if view is None:
            view = self._views.setdefault(here, _View(self.name, self._settings, self._installation))
            self._views = {here: view}
        return view

    def _egress(self, view: _View, spec: LaunchSpec) -> Egress | None:
        """The addresses that the attempt's learners may reach; None: there is no policy."""
        if not self._settings.network_policies:
            return None
        return objects.egress(self._settings, spec, view.nodes.objects(self._settings.timeout))

    def _gpu_types(self, view: _View, spec: LaunchSpec) -> list[str]:
        """The values of the GPU type's label that fit what is asked; where no node has any yet, what is asked."""
        asked = spec.resources.gpu_type
        if not asked or not spec.resources.gpus:
            return []
        nodes = view.nodes.objects(self._settings.timeout)
        there = {(node["metadata"]["labels"] or {}).get(self._settings.gpu_type_label) for node in nodes}
        return sorted(gpu_type for gpu_type in there if gpu_type and gpu_type_fits(asked, gpu_type)) or [asked]

    def _stop(self, view: _View, namespace: str, run_name: str, grace: timedelta) -> None:
        known = {pod["metadata"]["uid"] for pod in _of_run(view.pods.known(), run_name)}
        pods, now = view.read_pods(namespace, run_name)
        view.pods.note(pods)
        view.pods.gone(known - {pod["metadata"]["uid"] for pod in pods})
        stopper = Stopper(view.cluster, view.own, view.node, kueue=bool(self._settings.queue))
        if self._settings.network_policies:
            stopper.keep_policy(namespace, run_name, pods)
        for pod in pods:
            stopper.end(pod, now, grace)
        stopper.forget(namespace, run_name)
        view.secrets.gone(secret["metadata"]["uid"] for secret in _of_run(view.secrets.known(), run_name))
        stopper.release(namespace, run_name, pods)


class _View:
    """A process's view of the cluster."""

    def __init__(self, engine: str, settings: KubernetesSettings, installation: str) -> None:
        self._settings = settings
        self._scattered = names.per_project(settings.namespace)
        self.own = names.own_labels(engine, installation)
        self.cluster = Cluster(engine, settings)
        self.details = Details(self.cluster, settings.queue or "")
        self._lock = threading.Lock()
        self._deleted: dict[str, tuple[float, Json]] = {}
        where = () if self._scattered else (settings.namespace,)  # no more rights than needed
        ours = {"label_selector": names.selector(self.own)}
        self.pods = Mirror(
            self.cluster,
            "pods",
            _list_call("pod", self._scattered),
            *where,
            trim=runs.trim_pod,
            on_deleted=self._remember,
            options=ours,
        )
        self.secrets = Mirror(
            self.cluster,
            "secrets",
            _list_call("secret", self._scattered),
            *where,
            trim=runs.trim_secret,
            accept=(METADATA_LIST, METADATA),
            options=ours,
        )
        self.nodes = Mirror(self.cluster, "nodes", "list_node", trim=capacity.trim_node)
        self.everybody = Mirror(  # for the capacity alone
            self.cluster,
            "pods of all namespaces",
            "list_pod_for_all_namespaces",
            trim=capacity.trim_pod,
            options={"field_selector": "status.phase!=Succeeded,status.phase!=Failed"},
        )

    def probe(self) -> None:
        """Send the server a small request: a silent watch does not show whether the server is alive."""
        namespace = names.fill(self._settings.namespace, "probe")
        try:
            self.cluster.get("read_namespaced_pod", _PROBE, namespace)
        except Refused as error:
            if error.status != 404:
                raise self.cluster.unreachable(str(error)) from error

    def node(self, name: str) -> Json | None:
        """A node, as the watch knows it; None: it is not known."""
        found = self.nodes.objects(self._settings.timeout)
        return next((node for node in found if node["metadata"]["name"] == name), None)

    def vanished(self, runs_there: set[str]) -> list[Json]:
        """The last versions of pods that somebody else deleted: their runs' Secrets are still there."""
        oldest = time.monotonic() - _DELETED_KEPT
        with self._lock:
            self._deleted = {
                uid: (at, pod)
                for uid, (at, pod) in self._deleted.items()
                if at > oldest and names.label(pod, names.RUN) in runs_there
            }
            return [pod for _, pod in self._deleted.values()]

    def _remember(self, pod: Json) -> None:
        with self._lock:
            self._deleted[pod["metadata"]["uid"]] = time.monotonic(), pod

    def namespaces(self, run_name: str) -> list[str]:
        """The namespaces in which a run's objects are."""
        if not self._scattered:
            return [self._settings.namespace]
        if known := _of_run((*self.secrets.known(), *self.pods.known()), run_name):
            return namespaces(known)
        found: list[Json] = []
        for kind in ("secret", "pod"):
            found += self.cluster.list(_list_call(kind, True), label_selector=self._selector(run_name))[0]
        return namespaces(found)

    def read_pods(self, namespace: str, run_name: str) -> tuple[list[Json], datetime]:
        """A run's pods as they are now, and the server's time."""
        found, now = self.cluster.get_dated("list_namespaced_pod", namespace, label_selector=self._selector(run_name))
        return found["items"], now

    def _selector(self, run_name: str) -> str:
        return names.selector({**self.own, names.RUN: run_name})

    def close(self) -> None:
        for mirror in (self.pods, self.secrets, self.nodes, self.everybody):
            mirror.close()


def _of_run(found: Iterable[Json], run_name: str) -> list[Json]:
    return [item for item in found if names.label(item, names.RUN) == run_name]


def _list_call(kind: str, everywhere: bool) -> str:
    return f"list_{kind}_for_all_namespaces" if everywhere else f"list_namespaced_{kind}"
