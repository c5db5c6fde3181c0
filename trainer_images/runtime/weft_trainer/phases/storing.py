"""After the program: the last checkpoint, the log and the results go to their stores."""

from __future__ import annotations

from weft_trainer.errors import Fenced, TrainerError, warn
from weft_trainer.phases.learner import Learner
from weft_trainer.program.endings import STOPPED, Ending
from weft_trainer.results.leftovers import Leftovers
from weft_trainer.results.manifest import Results, results_of
from weft_trainer.results.mounted import copy_results
from weft_trainer.stores.retry import patiently
from weft_trainer.stores.summary import summary

_PATIENCE = 600.0
"""Seconds that a store may be away while results wait to go there."""
_STOPPING_PATIENCE = 30.0
_GRANT_PAUSES = (0.05, 0.1, 0.2, 0.5)


def store(learner: Learner, ending: Ending) -> Ending:
    """Store all that the program has left. Returns the learner's ending, which changes if that fails.

    Raises:
        Fenced: and nothing more was stored.
    """
    ending = _store_checkpoint(learner, ending)
    learner.log.close_file()
    learner.folders.put_code()
    learner.folders.put_log(learner.merged_log, learner.spec.learner_id)
    granted, ending = _await_grant(learner, ending)
    learner.supervisor.end_helpers()  # until now other learners may have needed them
    return _store_results(learner, ending) if granted else ending


def _store_checkpoint(learner: Learner, ending: Ending) -> Ending:
    if learner.checkpoints is None:
        return ending
    try:
        learner.checkpoints.finish(ending.killed_at, _patience(learner), ending.cut_off)
    except (TrainerError, OSError) as error:
        warn(f"the last checkpoint was not stored: {error}")
        if ending.exit_code != 0:
            return ending._replace(reason=f"{ending.reason} (the last checkpoint was not stored: {error})")
    return ending


def _await_grant(learner: Learner, ending: Ending) -> tuple[bool, Ending]:
    """Whether this learner may store its results, once all others have ended well, too. A stop meanwhile means that one
    of them did not."""
    pauses = iter(_GRANT_PAUSES)
    pause = 0.0
    while True:
        answer = learner.api.storing(ending.exit_code)
        if answer["granted"] or not answer.get("wait"):
            return bool(answer["granted"]), ending
        pause = next(pauses, pause)
        learner.control.sleep(pause)
        if learner.control.fenced:
            raise Fenced
        if learner.control.stop_requested and ending.exit_code == 0:
            ending = STOPPED


def _store_results(learner: Learner, ending: Ending) -> Ending:
    """Store the results; for a learner that failed or was stopped, as much as works."""
    spec, workdir = learner.spec, learner.config.workdir
    left = Leftovers()
    try:
        files = results_of(learner.folders.result, workdir)
        if spec.leftovers is not None:
            prefix = "" if learner.leads else f"learner-{spec.learner_id}/"
            left = learner.job_folder.leftovers(spec.leftovers, [key for key, _ in files], prefix)
            files += left.uploads
        place = learner.store("results", spec.results)
        results = Results(place, spec, lambda: _patience(learner), lambda: learner.control.fenced)
        # In an elastic job, no learner knows which learners' results there will be.
        results.put(files, complete=ending.exit_code == 0 and spec.elastic is None)
        if spec.results_folder is not None:
            copy_results(files, spec.results_folder)
        if spec.registers and spec.rank == 0 and ending.exit_code == 0:
            stored = patiently(place.list, _patience(learner))
            learner.outputs = summary((item for item in stored if not item.key.endswith("/")), etags=False)
    except (TrainerError, OSError) as error:
        left.fail(str(error))
        if ending.exit_code == 0:
            return Ending(1, f"S303 results can't be stored: {error}")
        warn(f"partial results were not stored: {error}")
        return ending._replace(reason=f"{ending.reason} (partial results were not stored: {error})")
    finally:
        learner.leftovers = left.report()
    return ending


def _patience(learner: Learner) -> float:
    return _STOPPING_PATIENCE if learner.control.stop_requested else _PATIENCE
