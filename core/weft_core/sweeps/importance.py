"""How much each parameter of a sweep matters: Optuna's PED-ANOVA over the trials that have a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_core.manifest.sweep_models import Sweep
from weft_core.sweeps.search import Known, study_of

FEWEST: Final = 10
"""Fewer trials tell nothing about their parameters."""


def importance(sweep: Sweep, trials: Sequence[Known]) -> dict[str, float]:
    """The share of each parameter in how good the best tenth of the trials is, the largest first; together 1.

    Empty if there are too few trials, or if all of them are equally good.
    """
    values = {known.value for known in trials}
    if len(trials) < FEWEST or len(values) < 2:
        return {}
    study = study_of(sweep, trials)
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    # At least five trials are to count as good, as the evaluator asks for.
    good = min(0.5, max(0.1, 5 / len(trials)))
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=good))
