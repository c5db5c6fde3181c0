"""Requests that wait for the end of a job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from weft_api.access.auth import Principal
from weft_api.context import Context, Shared
from weft_api.jobs.schemas import JobEnd
from weft_api.streaming.batch_queue import BatchQueue
from weft_api.streaming.sign_ins import SIGN_INS
from weft_api.streaming.wakeups import WAKEUPS, Subscription
from weft_api.telemetry import METRICS
from weft_core.store.scope import Scope

_THREADS = 2

# The project is in the conditions, too, although Postgres shows no other: not every installation has the policies.
_STATES = "select id, state, reason from jobs where project_id = %s and id = any(%s::text[])"


class Ends:
    """Reads the states of jobs whose ends are awaited; a request that waits holds no thread and no connection.

    Jobs of a project that are due at the same time are one query. Used from the event loop only.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        # One group at a time, so that the next one gathers meanwhile.
        self._queue = BatchQueue[str, JobEnd | None](_THREADS, groups_at_once=1)
        self._waiting: set[Subscription] = set()
        self._closing = False

    async def wait(self, who: Principal, job_id: str, now: JobEnd, seconds: float) -> JobEnd:
        """The job's state once the job has ended, but no later than after ``seconds``.

        It comes sooner, and may be ``now``, if the job is deleted, the caller is signed out or has too many streams
        open, or the process is being stopped. The caller's next request learns the reason.
        """
        context = self._context
        read = partial(self._read, who.project_id)
        with METRICS.of(context).followers.labels("ends").track_inprogress(), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), WAKEUPS.of(context).subscribe(job_id, logs=False) as subscription:
                with self._released(subscription), SIGN_INS.of(context).watch(who, subscription.notify) as sign_in:
                    while not (now.ended or sign_in.ended or self._closing):
                        with contextlib.suppress(DBAPIError, PoolTimeout):  # the next query may succeed
                            found = await self._queue.run(who.project_id, job_id, read)
                            if found is None:
                                break
                            now = found
                        if not now.ended:
                            await subscription.wait()
        return now

    def release(self) -> None:
        """The process is being stopped: answer all requests that wait."""
        self._closing = True
        for subscription in self._waiting:
            subscription.notify()

    @contextlib.contextmanager
    def _released(self, subscription: Subscription) -> Iterator[None]:
        """Let :meth:`release` wake the subscriber, until the context is left."""
        self._waiting.add(subscription)
        try:
            yield
        finally:
            self._waiting.discard(subscription)

    def _read(self, project_id: str, job_ids: Sequence[str]) -> list[JobEnd | None]:
        with self._context.database.transaction() as session:
            Scope(session, project_id)
            rows = session.connection().exec_driver_sql(_STATES, (project_id, list(job_ids))).all()
        found = {job_id: JobEnd.of(state, reason) for job_id, state, reason in rows}
        return [found.get(job_id) for job_id in job_ids]


ENDS = Shared(Ends)
