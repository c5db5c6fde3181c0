"""FfDL's models are jobs. A job that is to be deleted is not found any more."""

from __future__ import annotations

from weft_api.access.lookups import find_job
from weft_api.http.problems import not_found
from weft_core.lifecycle.states import Desired
from weft_core.store.models import Job
from weft_core.store.scope import Scope

DELETED = Desired.DELETED.value


def find_model(scope: Scope, model_id: str) -> Job:
    """The job with this id. Raises Problem not_found."""
    job = find_job(scope, model_id)
    if job.desired == DELETED:
        raise not_found("model", model_id)
    return job
