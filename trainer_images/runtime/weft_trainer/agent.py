"""The agent of one learner: it gets the start grant, and takes the learner through its phases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from weft_trainer.config import Config, derive_secret
from weft_trainer.control import Control
from weft_trainer.errors import ApiError, Fenced, Stopped, TrainerError, warn
from weft_trainer.folders import agent_folder
from weft_trainer.machine.prctl import become_reaper
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.metrics.learner import SPOOL as METRICS_SPOOL
from weft_trainer.phases.learner import LOG_SPOOL, Learner
from weft_trainer.phases.report import report, report_early
from weft_trainer.phases.storing import store
from weft_trainer.phases.training import train
from weft_trainer.program.endings import STOPPED, Ending
from weft_trainer.service.client import ApiClient
from weft_trainer.service.mask import secrets_of
from weft_trainer.service.shipper import send_leftover
from weft_trainer.service.spool import BATCH_BYTES, METRIC_BATCH_BYTES, Spool, has_leftover
from weft_trainer.spec import LearnerSpec, parse_spec


class Agent:
    def __init__(self, config: Config, control: Control, watchdog: Watchdog, api: ApiClient) -> None:
        self._config = config
        self._control = control
        self._watchdog = watchdog
        self._api = api

    def run(self, answer: Callable[[], dict[str, Any]]) -> int:
        """Be the learner. Returns the agent's exit code. Raises: Fenced, TrainerError.

        Args:
            answer: waits for the answer to the request for the start grant. Raises: Fenced, Stopped, TrainerError.
        """
        become_reaper()
        try:
            spec = self._read(answer())
        except Stopped:
            return report_early(self._api, self._config.rank, STOPPED)
        except Fenced:
            self.stand_aside()
            raise
        except ApiError as error:
            if error.code == "already_granted" or error.status == 409:
                return self.stand_aside()
            raise
        try:
            learner = Learner(self._config, spec, self._control, self._api, self._watchdog)
        except OSError as error:
            ending = Ending(1, f"the learner's folders can't be made: {error}")
            return report_early(self._api, self._config.rank, ending)
        return _live(learner)

    def _read(self, grant: dict[str, Any]) -> LearnerSpec:
        spec = parse_spec(grant)
        spec = spec._replace(gang_secret=derive_secret(self._config.token, "gang"))
        if spec.rank != self._config.rank:
            raise TrainerError(
                f"the API's spec is for rank {spec.rank}, this learner was started as {self._config.rank}"
            )
        self._api.mask.learn(secrets_of(spec, self._config.token))
        return spec

    def stand_aside(self) -> int:
        """Another agent was this learner. If it died here, send the rest of its log and metrics all the same."""
        for name, size, send in (
            (LOG_SPOOL, BATCH_BYTES, partial(self._api.logs, late=True)),
            (METRICS_SPOOL, METRIC_BATCH_BYTES, self._api.metrics),
        ):
            folder = agent_folder(self._config.workdir) / name
            if has_leftover(folder):
                try:
                    send_leftover(Spool(folder, self._api.instance, size), send)
                except (ApiError, Fenced) as error:
                    warn(f"what an agent that died has left in {name} is refused: {error or 'the attempt is over'}")
        return 0


def _live(learner: Learner) -> int:
    """The phases, from the downloads to the report of the end. Returns the agent's exit code.

    Raises:
        Fenced: no process is left, and nothing more is stored.
    """
    learner.start()
    try:
        ending = _ended(lambda: _train_elastic(learner) if learner.spec.elastic else train(learner))
        if learner.ran:
            trained = ending
            ending = _ended(lambda: store(learner, trained))
        return report(learner, ending)
    finally:
        learner.supervisor.end_helpers()


def _train_elastic(learner: Learner) -> Ending:
    from weft_trainer.phases.elastic import ElasticTraining  # few learners need it

    return ElasticTraining(learner).run()


def _ended(phase: Callable[[], Ending]) -> Ending:
    """The ending that a phase comes to. There always is one, because the service waits for this learner's report."""
    try:
        return phase()
    except Fenced:
        raise
    except Stopped:
        return STOPPED
    except TrainerError as error:
        return Ending(1, error.with_code())
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        return Ending(1, f"the learner's agent failed: {type(error).__name__}: {error}")
