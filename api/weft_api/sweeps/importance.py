"""The importance of a sweep's parameters, computed once for each trial that ends."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from weft_api.access.auth import Principal
from weft_api.context import Context, Shared
from weft_api.sweeps.schemas import Importance, SweepImportance
from weft_api.sweeps.service import find_sweep
from weft_core.store.models import Trial, TrialState
from weft_core.sweeps.importance import importance
from weft_core.sweeps.search import Known
from weft_core.sweeps.trials import search_of

_MOST: Final = 2000
"""The trials that count: the newest. A computation takes a third of a second of processor time for so many."""
_KEPT: Final = 200


class _Computed:
    """The last answers, by the sweep and the number of its trials that have ended."""

    def __init__(self, _: Context) -> None:
        self._answers: OrderedDict[tuple[str, int], SweepImportance] = OrderedDict()
        self._lock = Lock()
        self.computing = Lock()
        """One computation at a time: it takes a processor."""

    def get(self, key: tuple[str, int]) -> SweepImportance | None:
        with self._lock:
            return self._answers.get(key)

    def put(self, key: tuple[str, int], answer: SweepImportance) -> None:
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)


_COMPUTED = Shared(_Computed)


def show_importance(context: Context, who: Principal, sweep_id: str) -> SweepImportance:
    """Raises Problem not_found."""
    computed = _COMPUTED.of(context)
    with context.database.transaction() as session:
        scope = who.scope(session)
        sweep = find_sweep(scope, sweep_id)
        key = (sweep.id, sweep.told)
        if (known := computed.get(key)) is not None:
            return known
        query = scope.select(Trial, Trial.sweep_id == sweep.id, Trial.state == TrialState.COMPLETED)
        rows = scope.all(query.order_by(Trial.number.desc()).limit(_MOST))
        trials = [Known(row.parameters, row.value) for row in reversed(rows)]
        search = search_of(sweep)
    with computed.computing:
        answer = computed.get(key)
        if answer is None:
            shares = importance(search, trials)
            answer = SweepImportance(
                trials=len(trials),
                parameters=[Importance(name=name, share=share) for name, share in shares.items()],
            )
            computed.put(key, answer)
    return answer
