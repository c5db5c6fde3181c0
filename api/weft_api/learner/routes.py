"""HTTP for learners."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from weft_api.access.attempts import Token
from weft_api.context import Ctx
from weft_api.http.audited import audited, unaudited
from weft_api.http.problems import (
    ALREADY_GRANTED,
    CONFLICT,
    NO_GRANT,
    STALE_ATTEMPT,
    STORE_UNAVAILABLE,
    responses,
)
from weft_api.learner import rounds, service
from weft_api.learner.objects import objects
from weft_api.learner.schemas import (
    AddressCall,
    ExitCall,
    IdentityTokenCall,
    ObjectsAnswer,
    ObjectsCall,
    Peers,
    PhaseCall,
    ProfileCall,
    QueryPhase,
    QueryRank,
    RoundAnswer,
    RoundCall,
    StacksCall,
    StartCall,
    StoreKeysCall,
    StoringAnswer,
    StoringCall,
)
from weft_core.launch import IdentityToken, LearnerSpec, StoreKeys
from weft_core.lifecycle.states import LearnerPhase

router = APIRouter(prefix="/api/v1/learner", tags=["learner"], responses=responses(STALE_ATTEMPT))

_SPEC = LearnerSpec(
    job_id="job-4k9x2m7qd1ze",
    job_name="mnist-horovod",
    attempt=1,
    rank=0,
    learners=2,
    cpus=1,
    gpus=0,
    command="python train.py",
    framework="horovod",
    launcher="horovod",
    env={},
).model_dump(mode="json")

_STORE_KEYS = {"access_key": "ASIAEXAMPLE", "secret_key": "…", "session_token": "…", "seconds": 3600}

_IDENTITY_TOKEN = {"token": "eyJhbGciOiJSUzI1NiI…", "seconds": 3600}

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds

_LEFT_OUT = unaudited("a learner reports its own work, thousands of times a minute")


@router.post(
    "/start",
    summary="Get the start grant and the spec",
    responses={200: {"content": {"application/json": {"example": _SPEC}}}, **responses(ALREADY_GRANTED)},
    openapi_extra=audited("learners.read_secrets", "job", read=True),
)
def start(call: StartCall, context: Ctx, token: Token) -> LearnerSpec:
    """Each rank of an attempt gets its grant once. If the same instance asks again, it gets the same answer."""
    return service.start(context, token, call)


@router.post(
    "/store-keys",
    summary="Renew the temporary keys of the data store",
    responses={
        200: {"content": {"application/json": {"example": _STORE_KEYS}}},
        **responses(NO_GRANT, CONFLICT, STORE_UNAVAILABLE),
    },
    openapi_extra=unaudited("the start, which hands out the first keys, is recorded"),
)
def store_keys(call: StoreKeysCall, context: Ctx, token: Token) -> StoreKeys:
    """The keys open the locations of the spec that are `temporary`. There are new keys as long as the attempt lasts."""
    return service.renew_store_keys(context, token, call)


@router.post(
    "/identity-token",
    summary="Renew the identity token",
    responses={
        200: {"content": {"application/json": {"example": _IDENTITY_TOKEN}}},
        **responses(CONFLICT),
    },
    openapi_extra=unaudited("the start, which hands out the first token, is recorded"),
)
def identity_token(call: IdentityTokenCall, context: Ctx, token: Token) -> IdentityToken:
    """The token is for the audience that the manifest's `identity` names. There are new tokens as long as the attempt
    lasts."""
    return service.renew_identity_token(context, token, call)


@router.post(
    "/address", status_code=204, summary="Report the address at which peers reach this learner", openapi_extra=_LEFT_OUT
)
def address(call: AddressCall, context: Ctx, token: Token) -> None:
    service.address(context, token, call)


@router.get("/peers", summary="Get the addresses of the gang's learners")
async def peers(
    context: Ctx,
    token: Token,
    rank: QueryRank,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for the other learners.")] = 0,
    phase: QueryPhase = None,
) -> Peers:
    """The call waits up to `wait` seconds until all learners are ready."""
    wanted = LearnerPhase(phase) if phase else None
    deadline = time.monotonic() + wait
    pause = _FIRST_PAUSE
    while True:
        # A thread only while the database is asked: many learners may wait at the same time.
        found = await run_in_threadpool(service.peers, context, token, rank, wanted)
        if found.ready or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@router.post("/round", summary="Take part in the rounds of an elastic job", openapi_extra=_LEFT_OUT)
async def take_part(call: RoundCall, context: Ctx, token: Token) -> RoundAnswer:
    """The call waits up to `wait` seconds for a change."""
    deadline = time.monotonic() + call.wait
    pause = _FIRST_PAUSE
    while True:
        found = await run_in_threadpool(rounds.take_part, context, token, call)
        if found.verdict != "wait" or call.state == "broken" or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@router.post("/phase", status_code=204, summary="Report the learner's phase", openapi_extra=_LEFT_OUT)
def phase(call: PhaseCall, context: Ctx, token: Token) -> None:
    service.phase(context, token, call)


@router.post(
    "/stacks",
    status_code=204,
    summary="Report the stacks of the learner's processes, as a heartbeat's answer has asked",
    openapi_extra=_LEFT_OUT,
)
def stacks(call: StacksCall, context: Ctx, token: Token) -> None:
    service.stacks(context, token, call)


@router.post(
    "/profile",
    status_code=204,
    summary="Report how the recording of a profile goes",
    openapi_extra=_LEFT_OUT,
)
def profile(call: ProfileCall, context: Ctx, token: Token) -> None:
    service.profile(context, token, call)


@router.post(
    "/storing", summary="Report the end of the user's program, and ask for the storing grant", openapi_extra=_LEFT_OUT
)
def storing(call: StoringCall, context: Ctx, token: Token) -> StoringAnswer:
    return service.storing(context, token, call)


@router.post(
    "/objects",
    summary="Get presigned URLs of the installation's own store, or list its objects",
    responses=responses(NO_GRANT, STORE_UNAVAILABLE),
    openapi_extra=_LEFT_OUT,
)
def learner_objects(call: ObjectsCall, context: Ctx, token: Token) -> ObjectsAnswer:
    return objects(context, token, call)


@router.post("/exit", status_code=204, summary="Report the learner's exit", openapi_extra=_LEFT_OUT)
def exited(call: ExitCall, context: Ctx, token: Token) -> None:
    service.exited(context, token, call)
