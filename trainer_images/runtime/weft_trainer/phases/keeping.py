"""A learner whose command has failed stays for a while, so that a user can look inside (``keep_on_failure``)."""

from __future__ import annotations

from weft_trainer.errors import ApiError, Fenced
from weft_trainer.phases.learner import Learner
from weft_trainer.program.endings import Ending
from weft_trainer.words import duration


def keep(learner: Learner, ending: Ending) -> None:
    """Stay after a failure, until the time is over or a stop comes. Raises: Fenced."""
    seconds, control = learner.spec.keep_seconds, learner.control
    if not seconds or not ending.exit_code or control.stop_requested:
        return
    learner.log.say(f"weft: {ending.reason}; this learner stays for {duration(seconds)} for a look inside")
    try:
        learner.api.keep(ending.exit_code, ending.reason, learner.log.last_lines, seconds)
    except ApiError as error:
        learner.log.say(f"weft: it does not stay: {error}")
        return
    control.sleep(seconds)
    if control.fenced:
        raise Fenced
