"""Heartbeats: with many learners, most of what the API does. Those of an attempt that wait are stored together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from sqlalchemy import text
from sqlalchemy.orm import Session

from weft_api.access.attempts import AttemptToken
from weft_api.context import Context, Shared
from weft_api.http.bodies import parse_json, validated
from weft_api.http.problems import Problem
from weft_api.learner import service
from weft_api.learner.schemas import HeartbeatAnswer, HeartbeatCall
from weft_api.streaming.batch_queue import BatchQueue

# Rows that another transaction holds are left to service.heartbeat: waiting for some while holding others could be a
# deadlock. A learner whose workers have failed, and that was ordered to leave, still sends its log.
_BEAT = text(
    """
    with beats as (
      select * from unnest(
        cast(:ranks as int[]), cast(:instances as text[]), cast(:wrote as bool[]), cast(:idle as float8[]),
        cast(:still as float8[]), cast(:pause as float8[]), cast(:saved as float8[]), cast(:works as bool[])
      ) as beat (rank, instance, wrote, idle, still, pause, saved, works)
    ), held as (
      select learners.attempt_id, attempts.stop_requested_at, attempts.grace_seconds, attempts.stalled_at,
        attempts.look_at, beats.*
      from attempts
      join learners on learners.attempt_id = attempts.id
      join beats on beats.rank = learners.rank and beats.instance = learners.instance
      where attempts.token_sha256 = :sha256 and attempts.ended_at is null
        and (learners.left_at is null or learners.broken is not null)
      for no key update of learners skip locked
    )
    update learners set
      heartbeat_at = now(),
      heard_since = case
        when coalesce(learners.heartbeat_at, now()) < now() - make_interval(secs => :silence) then now()
        else learners.heard_since
      end,
      wrote = held.wrote,
      idle_since = now() - make_interval(secs => held.idle),
      still_since = now() - make_interval(secs => held.still),
      pause_seconds = held.pause,
      saved_at = coalesce(now() - make_interval(secs => held.saved), learners.saved_at),
      active_at = case when held.works then now() else learners.active_at end
    from held where learners.attempt_id = held.attempt_id and learners.rank = held.rank
    returning held.rank, held.stop_requested_at, held.grace_seconds, held.stalled_at, held.look_at
    """
)

QUEUE: Shared[BatchQueue[bytes, HeartbeatAnswer]] = Shared(lambda _: BatchQueue(threads=4))


async def accept(context: Context, token: AttemptToken, body: bytes) -> HeartbeatAnswer:
    """Pass one body to :func:`take_in`, together with those of the same attempt that wait. Raises what it finds."""
    return await QUEUE.of(context).run(token.sha256, body, lambda bodies: take_in(context, token, bodies))


def take_in(context: Context, token: AttemptToken, bodies: Sequence[bytes]) -> list[HeartbeatAnswer | Exception]:
    """Note heartbeats of one attempt's learners, with one statement for all of them.

    Args:
        bodies: each a HeartbeatCall, as it came.

    Returns:
        The answer to each; a Problem (stale_attempt) or a RequestValidationError is that call's alone.
    """
    calls: list[HeartbeatCall | Exception] = []
    for body in bodies:
        try:
            calls.append(validated(HeartbeatCall, parse_json(body)))
        except (Problem, RequestValidationError) as error:
            calls.append(error)
    valid = [call for call in calls if isinstance(call, HeartbeatCall)]
    with context.database.transaction() as session:
        noted = note_beats(context, session, token, valid)
    answers = iter(answer_beats(context, token, valid, noted))
    return [call if isinstance(call, Exception) else next(answers) for call in calls]


def note_beats(
    context: Context, session: Session, token: AttemptToken, calls: Sequence[HeartbeatCall]
) -> dict[tuple[int, str], Any]:
    """The rows of the learners whose heartbeats are noted, by rank and instance."""
    if not calls:
        return {}
    # Of a rank with several, the last.
    calls = list({call.rank: call for call in calls}.values())
    told = {
        "ranks": [call.rank for call in calls],
        "instances": [call.instance for call in calls],
        "wrote": [call.wrote for call in calls],
        "idle": [call.idle_seconds for call in calls],
        "still": [call.still_seconds for call in calls],
        "pause": [call.pause_seconds for call in calls],
        "saved": [call.saved_seconds for call in calls],
        "works": [service.works(call.system) for call in calls],
    }
    silence = context.settings.timings.silence
    instances = {call.rank: call.instance for call in calls}
    rows = session.execute(_BEAT, {**told, "sha256": token.sha256, "silence": silence})
    return {(row.rank, instances[row.rank]): row for row in rows}


def answer_beats(
    context: Context, token: AttemptToken, calls: Sequence[HeartbeatCall], noted: Mapping[tuple[int, str], Any]
) -> list[HeartbeatAnswer | Exception]:
    """The answers to heartbeats. Those that :func:`note_beats` has left out are noted now, each in a transaction of its
    own; the transaction of :func:`note_beats` has been committed."""
    return [_answer(context, token, call, noted.get((call.rank, call.instance))) for call in calls]


def _answer(context: Context, token: AttemptToken, call: HeartbeatCall, row: Any) -> HeartbeatAnswer | Exception:
    if row is not None:
        return service.heartbeat_answer(context, row.stop_requested_at, row.grace_seconds, row.stalled_at, row.look_at)
    try:
        return service.heartbeat(context, token, call)
    except Problem as error:
        return error
