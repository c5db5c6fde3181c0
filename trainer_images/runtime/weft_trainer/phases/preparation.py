"""Before the program: the inputs are brought here, the learners meet, and the launcher plans what each starts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from weft_trainer.errors import DataError, warn
from weft_trainer.inputs.cache import NodeCache
from weft_trainer.inputs.downloader import Downloader
from weft_trainer.inputs.model_version import bring_model
from weft_trainer.inputs.mounts import link
from weft_trainer.inputs.overlay import bring_overlay
from weft_trainer.inputs.repository import bring_repository
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.base import as_open_mpi
from weft_trainer.phases.learner import Learner
from weft_trainer.program.plan import Plan
from weft_trainer.spec import LearnerSpec, Peer
from weft_trainer.stores.installation import InstallationStore
from weft_trainer.stores.retry import PATIENCE, patiently
from weft_trainer.stores.s3 import S3Store
from weft_trainer.stores.summary import summary
from weft_trainer.words import count

_PEERS_WAIT = 10.0
_MOMENT = 0.5
"""Seconds."""


class Brought(NamedTuple):
    """A summary of the inputs that were brought here, for the service."""

    words: str = ""
    inputs: Mapping[str, Mapping[str, Any]] = {}
    checkpoint: Mapping[str, Any] | None = None
    """The checkpoint that this learner begins with."""


def prepare(learner: Learner, ports: Sequence[int]) -> Plan:
    """All that a gang of fixed size does before the program starts. It runs in a thread, so that a stop need not wait
    for a download. Raises: Fenced, TrainerError.

    Args:
        ports: this learner's, for its peers.
    """
    launcher = find_launcher(learner.spec.launcher)
    me = Peer(learner.spec.rank, learner.address, tuple(ports))
    if learner.spec.learners == 1:
        brought, peers = bring_inputs(learner), [me]
    else:
        with ThreadPoolExecutor(1, "address") as beside:
            reported = beside.submit(learner.api.address, me.address, me.ports)
            brought = bring_inputs(learner)
            reported.result()
        peers = _meet(learner)
    plan = launcher.plan(learner.spec, me, peers)
    if learner.has_package("jax"):
        plan = as_open_mpi(plan, learner.spec.env)
    learner.api.phase("PROCESSING", brought.words, brought.inputs, brought.checkpoint, me)
    return plan


def bring_inputs(learner: Learner) -> Brought:
    """Code, data, the pretrained model, and the last checkpoint. Raises: Fenced, TrainerError."""
    spec = learner.spec
    _look_up_results(spec)
    if not spec.has_downloads:
        learner.make_venv(None)
        return Brought()
    cache = NodeCache(learner.config.cache_dir, learner.config.cache_size)
    ended = threading.Event()
    with ThreadPoolExecutor(2, "beside") as beside:  # the data comes meanwhile
        reported = beside.submit(_report_unless, ended, learner)
        try:
            overlay = beside.submit(_lay_over, learner, cache)
            brought = _bring_files(learner, cache)
            words = overlay.result()
        finally:
            ended.set()
        reported.result()
    return brought._replace(words="; ".join(filter(None, (brought.words, words))))


def _report_unless(ended: threading.Event, learner: Learner) -> None:
    """Report the phase of downloads that last for a moment or longer."""
    if not ended.wait(_MOMENT):
        learner.api.phase("DOWNLOADING")


def _lay_over(learner: Learner, cache: NodeCache) -> str:
    """Put the packages that the image lacks in front of the image. Returns a description."""
    bundle = learner.spec.overlay
    try:
        overlay = None if bundle is None else bring_overlay(bundle, cache, learner.folders.agent)
        learner.make_venv(overlay)
        return overlay.words if overlay else ""
    except (DataError, OSError) as error:
        problem = DataError(str(error))
        problem.error_code = "C102"
        raise problem from error


def _bring_files(learner: Learner, cache: NodeCache) -> Brought:
    spec, folders = learner.spec, learner.folders
    downloader = Downloader(cache, warn, say=learner.log.say)
    words = [bring_repository(spec.repo, folders.model)] if spec.repo else []
    words.append(downloader.run(spec, folders))
    inputs = dict(downloader.inputs)
    origin = None
    if spec.mounts:
        words.append(link(spec.mounts, folders.data))
    if spec.model is not None and spec.pretrained is None:
        store = InstallationStore(learner.api, "pretrained")
        files = bring_model(store, spec.model, cache, folders.pretrained, learner.log.say)
        inputs["pretrained"] = summary(files, etags=False)
        words.append(f"{count(len(files), 'file')} of model {spec.model.reference}")
    if spec.may_have_checkpoints and learner.checkpoints is not None:  # in an elastic job each round restores them
        restored = learner.checkpoints.restore(PATIENCE)
        origin = restored.origin
        words.append(restored.words(spec.job_id))
    return Brought("; ".join(filter(None, words)), inputs, origin)


def _look_up_results(spec: LearnerSpec) -> None:
    """Check the store for the results, so that a mistyped name shows now, and not after the training."""
    if spec.results is not None:
        try:
            patiently(S3Store(spec.results).resolve, PATIENCE, beginning=True)
        except DataError as error:
            error.error_code = "S303"
            raise


def _meet(learner: Learner) -> list[Peer]:
    """All learners, once all of them are there: a gang starts as a whole."""
    while (peers := learner.api.peers(_PEERS_WAIT)) is None:
        pass
    return peers
