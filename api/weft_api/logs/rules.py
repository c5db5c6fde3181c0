"""Rules about the log: ``log /CUDA error/``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from weft_api.http.patterns import BadPattern, rule_pattern
from weft_api.logs.batches import NewChunk
from weft_core.rules import LogCondition, conditions
from weft_core.store.models import Job
from weft_core.store.rules import note_firing


def check_rules(session: Session, job: Job, attempt: int, chunks: Iterable[NewChunk]) -> None:
    """Note the rules of the job's manifest that these new lines fulfil, in the transaction that appends the lines."""
    for index, condition in conditions(job.manifest, LogCondition):
        try:
            pattern = rule_pattern(condition.pattern)
        except BadPattern:  # it was valid at submit, with an older RE2
            continue
        for chunk in chunks:
            line = next(pattern.lines(chunk.body), None)
            if line is not None:
                text = chunk.body.split(b"\n", line + 1)[line].decode("utf-8", "replace")
                found = f"line {chunk.first_line + line} of learner {chunk.rank + 1}: {text}"
                note_firing(session, job, index, attempt, found)
                break
