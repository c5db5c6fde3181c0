"""Settings of the engines. Each engine has a section ``[engines.NAME]``, and ``type`` selects its form."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from weft_core.launch import Toleration


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    isolates_tenants: ClassVar[bool] = False
    """Whether ``multi_tenant`` allows engines of this type: no job reaches another project's code or data."""
    avoids_nodes: ClassVar[bool] = False
    """Whether engines of this type can keep learners off single nodes."""


class PlacementSettings(_Section):
    """The nodes of a Kubernetes cluster on which learners may run: keys of an engine, for all its learners, and of a
    profile."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints of nodes that learners tolerate, each ``{key, operator, value, effect}`` as Kubernetes spells it."""
    affinity: dict[str, Any] = Field(default_factory=dict)
    """The ``affinity`` of the pods, as Kubernetes spells it. Only the scheduler follows it: admission does not."""
    priority_class: str | None = None
    """The PriorityClass of the pods."""
    image_pull_secrets: list[str] = Field(default_factory=list)
    """Names of Secrets in the learners' namespace, with which the nodes pull images."""


class NodePool(_Section):
    """Nodes that the cluster's autoscaler adds when jobs wait for them. Admission counts them as room."""

    max: int = Field(ge=0)
    """The most nodes that the pool can have, with those that are there already."""
    cpus: float
    """CPUs of each node, for learners."""
    gpus: int = 0
    """GPUs of each node."""
    gpu_type: str | None = None
    """The type of the GPUs."""
    memory: int
    """Memory of each node, for learners, in bytes."""
    extra: dict[str, float] = Field(default_factory=dict)
    """Other resources of each node, by the engine's own names."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of each node, by which profiles select it."""


_HOST_AND_PORT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


class LocalSettings(_Section):
    """Processes on the worker's machine (docs/local-engine.md)."""

    type: Literal["local"] = "local"
    """``local``, which makes the section an engine of this type."""
    cpus: float | None = None
    """The CPUs that learners may have; default: those of the machine."""
    gpus: int | None = None
    """The GPUs that learners may have; default: those of the machine."""
    memory: int | None = None
    """The memory that learners may have, in bytes; default: that of the machine."""
    cache_dir: Path | None = None
    """The folder of the data cache; default: ``cache`` in the home folder."""
    cache_size: int | None = Field(default=None, ge=0)
    """The bytes that the data cache of each project may take; default: a quarter of its disk. 0: nothing is kept."""
    isolation: Literal["auto", "strict", "none"] = "auto"
    """Whether each learner has namespaces of its own, in which it sees its own folders and processes only, and each
    gang a network of its own. ``auto``: where the machine allows it; ``strict``: a job that can't have them is refused;
    ``none``: jobs see and reach all that the server's user does."""
    reachable: list[str] = Field(default_factory=list)
    """Services on this machine that jobs may connect to, as ``HOST:PORT``, such as ``localhost:9000``, besides the API,
    the stores and the package index of these settings. A gang with a network of its own reaches no others."""
    users: list[int] | None = None
    """The first and the last of the user ids for learners that can't have namespaces, such as ``[20000, 29999]``: those
    of each project run as one of these users, without the rights of the worker, which must be root. Nobody else may
    use these ids. Default: learners run as the worker's user."""
    host_mounts: list[Path] = Field(default_factory=list)
    """Folders of this machine that jobs may read and write by ``mount_volume``, with everything below them."""

    @field_validator("reachable")
    @classmethod
    def _hosts_and_ports(cls, values: list[str]) -> list[str]:
        for value in values:
            found = _HOST_AND_PORT.fullmatch(value)
            if not found or not 0 < int(found[2]) < 1 << 16:
                raise ValueError(f"expected HOST:PORT such as localhost:9000 or [::1]:9000: {value!r}")
        return values

    @field_validator("users")
    @classmethod
    def _first_and_last(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (len(value) != 2 or not 0 < value[0] <= value[1]):
            raise ValueError(f"expected the first and the last user id, such as [20000, 29999]: {value}")
        return value


def _user(value: object) -> object:
    return None if value == "cluster" else value  # TOML has no null


def _network(value: str) -> str:
    try:
        ip_network(value, strict=False)
    except ValueError:
        raise ValueError(f"expected a network such as 10.0.0.0/8: {value!r}") from None
    return value


Network = Annotated[str, AfterValidator(_network)]


class EgressRule(_Section):
    """A part of the network that learners may reach."""

    cidr: Network | None = None
    """Addresses, such as ``10.20.0.0/16``."""
    host: str | None = Field(default=None, pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")
    """Instead of ``cidr``: a host name, which Weft looks up when an attempt starts. The name of a service of the
    cluster, such as ``minio.storage.svc``, opens the service's namespace."""
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=list)
    """The TCP ports; none: all ports."""

    @model_validator(mode="after")
    def _one_place(self) -> EgressRule:
        if (self.cidr is None) == (self.host is None):
            raise ValueError("expected either cidr or host")
        return self


class KubernetesSettings(PlacementSettings):
    """Pods of a Kubernetes cluster, version 1.28 or later (docs/kubernetes.md)."""

    isolates_tenants: ClassVar[bool] = True
    avoids_nodes: ClassVar[bool] = True

    type: Literal["kubernetes"] = "kubernetes"
    """``kubernetes``, which makes the section an engine of this type."""
    kubeconfig: Path | None = None
    """The kubeconfig file; default: in a cluster the pod's own service account, else ``$KUBECONFIG`` or
    ``~/.kube/config``."""
    context: str | None = None
    """The context of the kubeconfig; default: its current one."""
    namespace: str = "weft-learners"
    """The namespace in which learners run. ``{project}`` in it gives each project its own namespace."""
    create_namespaces: bool = False
    """Whether Weft creates a namespace that does not exist."""
    queue: str | None = None
    """A LocalQueue of Kueue in that namespace, which then admits the jobs; ``{project}`` works here, too."""
    api_url: str | None = None
    """The URL at which pods reach the API; default: ``api.public_url``."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls an image, as Kubernetes spells it."""
    mount_agent: bool = True
    """Whether images of users (framework ``custom``) get the agent from the image ``agent``, so that they need nothing
    but Python. If not, they must contain it."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that a manifest's ``gpus`` asks for."""
    gpu_type_label: str = "nvidia.com/gpu.product"
    """The node label that a manifest's ``gpu_type`` is compared with."""
    shared_memory: int | None = None
    """The size of ``/dev/shm`` in bytes, a part of the learner's memory; default: half of that memory."""
    run_as_user: Annotated[int | None, BeforeValidator(_user)] = 10001
    """The user ID of learners. ``"cluster"``: the cluster chooses it (OpenShift)."""
    cache_claim: str | None = None
    """A PersistentVolumeClaim that all learners mount for the data cache. Each project has its own folder in it, and
    cannot see the others. Default: each pod has its own cache."""
    cache_size: int | None = Field(default=None, ge=0)
    """The bytes that the cache of each project may take; default: a quarter of its disk. 0: nothing is kept."""
    network_policies: bool = True
    """Whether each attempt gets a NetworkPolicy, which restricts what its learners reach and who reaches them."""
    egress: list[Network | EgressRule] = Field(default_factory=list)
    """What learners may reach besides each other, the API, S3, DNS, and the public addresses of the URLs in their
    manifest: networks (CIDRs), or tables ``{cidr | host, ports}``. A data store at a private address needs an entry.
    ``0.0.0.0/0``: all but link-local addresses, such as those of the clouds' metadata services, and the cluster's own
    networks."""
    service_networks: list[Network] = Field(default_factory=list)
    """The networks of the cluster's services, such as ``10.96.0.0/12``. A wider network in ``egress`` does not open
    them."""
    dns: list[Network] = Field(default_factory=list)
    """The addresses of the cluster's DNS servers, such as ``10.96.0.10/32``, or ``169.254.20.10/32`` for a cache on the
    nodes. Learners then reach port 53 there and at the pods ``k8s-app=kube-dns`` in ``kube-system``, and nowhere else.
    Default: at every address."""
    autoscaling: list[NodePool] = Field(default_factory=list)
    """Nodes that the cluster's autoscaler can add."""
    timeout: float = 10.0
    """The time limit of a request to the API server, in seconds."""


class RaySettings(_Section):
    """Actors of a Ray cluster, through the HTTP API of its dashboard (docs/ray.md)."""

    type: Literal["ray"] = "ray"
    """``ray``, which makes the section an engine of this type."""
    address: str = "http://127.0.0.1:8265"
    """The URL of the dashboard."""
    token: SecretStr | None = None
    """The cluster's token; or ``token_file``."""
    token_file: Path | None = None
    """A file that holds the token. Weft reads it again when Ray refuses the token."""
    allow_without_token: bool = False
    """Whether to accept a Ray cluster that requires no token. Everyone who reaches it can run anything on it."""
    ca_file: Path | None = None
    """A file with the certificates to trust, for an https address; default: the system's."""
    api_url: str | None = None
    """The URL at which learners reach the API; default: ``api.public_url``."""
    environments: dict[str, str] = Field(default_factory=dict)
    """For each image, the Python of its environment on the nodes, such as
    ``"pytorch:2.13.0" = "/opt/weft/pytorch/bin/python"``. ``"*"`` means any other image. Without an
    entry, an image runs on the cluster's own Python."""
    autoscaling: list[NodePool] = Field(default_factory=list)
    """Nodes that the cluster's autoscaler can add."""
    cache_dir: str | None = None
    """The folder of the data cache on the nodes; default: ``cache`` in the folder in which learners work."""
    cache_size: int | None = Field(default=None, ge=0)
    """The bytes that the data cache of a node may take; default: a quarter of its disk. 0: nothing is kept."""
    timeout: float = 10.0
    """The time limit of a request to the dashboard, in seconds."""

    @model_validator(mode="after")
    def _one_token(self) -> RaySettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file: leave out either of the two")
        return self


EngineSettings = Annotated[LocalSettings | RaySettings | KubernetesSettings, Field(discriminator="type")]
