"""Settings of the engines: one section ``[engines.NAME]`` each, told apart by its ``type``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from weft_core.launch import Toleration


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlacementSettings(_Section):
    """Where on a Kubernetes cluster learners may run; in a profile, and as an engine's default under it."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list)
    affinity: dict[str, Any] = Field(default_factory=dict)
    """A pod's ``affinity`` as Kubernetes spells it; for the scheduler, admission does not look at it."""
    priority_class: str | None = None
    image_pull_secrets: list[str] = Field(default_factory=list)


class NodePool(_Section):
    """Nodes that a cluster's autoscaler adds when somebody waits for them; admission counts with them."""

    max: int = Field(ge=0)
    cpus: float
    gpus: int = 0
    gpu_type: str | None = None
    memory: int
    extra: dict[str, float] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class LocalSettings(_Section):
    """This machine."""

    type: Literal["local"] = "local"
    cpus: float | None = None
    """CPU slots; default: what the machine has."""
    gpus: int | None = None
    """GPU slots; default: what NVML finds."""
    memory: int | None = None
    """Bytes that learners may have; default: what the machine has."""
    cache_dir: Path | None = None
    """The data cache; default: ``cache`` in the home folder."""
    cache_size: int | None = Field(default=None, ge=0)
    """Bytes that the data cache may take; default: a quarter of its disk. 0: nothing is kept."""
    host_mounts: list[Path] = Field(default_factory=list)
    """Folders of this machine that jobs may read from and write to by ``mount_volume``, with all that is below them."""


def _user(value: object) -> object:
    return None if value == "cluster" else value  # TOML has no null


class KubernetesSettings(PlacementSettings):
    """A Kubernetes cluster, 1.28 or later."""

    type: Literal["kubernetes"] = "kubernetes"
    kubeconfig: Path | None = None
    """Default: in a cluster the pod's own service account, else ``$KUBECONFIG`` or ``~/.kube/config``."""
    context: str | None = None
    """Of the kubeconfig; default: its current one."""
    namespace: str = "weft-learners"
    """Where learners run. ``{project}`` in it gives each project a namespace of its own."""
    create_namespaces: bool = False
    """Make a missing namespace; else somebody has to."""
    queue: str | None = None
    """A LocalQueue of Kueue's in that namespace (``{project}`` is replaced, too): Kueue admits the gangs."""
    api_url: str | None = None
    """The URL that pods reach the API at; default: ``api.public_url``."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    mount_agent: bool = True
    """Whether images of the users' own (framework ``custom``) get the agent from the image ``agent`` beside the others,
    so that they need nothing but Python; False: they hold it themselves."""
    gpu_resource: str = "nvidia.com/gpu"
    gpu_type_label: str = "nvidia.com/gpu.product"
    """The label of a node that says which GPUs it has."""
    shared_memory: int | None = None
    """Bytes of ``/dev/shm``, which count as the learner's memory; default: half of it."""
    run_as_user: Annotated[int | None, BeforeValidator(_user)] = 10001
    """``"cluster"``: the cluster chooses (OpenShift); None here."""
    cache_claim: str | None = None
    """A PersistentVolumeClaim, mounted by all learners, for the data cache: each project has a folder of its own in it,
    and sees no other's. Default: each pod has a cache of its own."""
    cache_size: int | None = Field(default=None, ge=0)
    """Bytes that a project's cache may take; default: a quarter of its disk."""
    network_policies: bool = True
    egress: list[str] = Field(default_factory=list)
    """CIDRs that learners may reach besides their peers, the API, their data stores and DNS; ``0.0.0.0/0``: all."""
    autoscaling: list[NodePool] = Field(default_factory=list)
    timeout: float = 10.0
    """Seconds for one request to the API server."""


class RaySettings(_Section):
    """A Ray cluster, through its dashboard's HTTP API."""

    type: Literal["ray"] = "ray"
    address: str = "http://127.0.0.1:8265"
    """URL of the dashboard."""
    token: SecretStr | None = None
    token_file: Path | None = None
    """A file that holds the token; read anew when Ray refuses the old one."""
    allow_without_token: bool = False
    """Whoever reaches a Ray without token authentication can run anything on it; refused unless this is true."""
    ca_file: Path | None = None
    """For an https address: the certificates to trust; default: the system's."""
    api_url: str | None = None
    """The URL that learners reach the API at; default: ``api.public_url``."""
    environments: dict[str, str] = Field(default_factory=dict)
    """Image of the catalogue → the Python of its environment on the nodes, e.g. ``"pytorch:2.13.0" =
    "/opt/weft/pytorch/bin/python"``; ``"*"``: any other image. What is not here runs on the cluster's own Python."""
    autoscaling: list[NodePool] = Field(default_factory=list)
    cache_dir: str | None = None
    """The data cache on the nodes; default: ``cache`` in the folder that learners work in there."""
    cache_size: int | None = Field(default=None, ge=0)
    """Bytes that a node's data cache may take; default: a quarter of its disk."""
    timeout: float = 10.0
    """Seconds for one request."""

    @model_validator(mode="after")
    def _one_token(self) -> RaySettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file: leave out either of the two")
        return self


EngineSettings = Annotated[LocalSettings | RaySettings | KubernetesSettings, Field(discriminator="type")]
