"""WebSockets for tunnels: a user's, and the agent's."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, WebSocket
from starlette.concurrency import run_in_threadpool

from weft_api.access.attempts import Token
from weft_api.access.auth import Editor
from weft_api.context import Ctx
from weft_api.http.audited import audited, socket_audit
from weft_api.http.problems import CONFLICT, NOT_FOUND, not_found, responses
from weft_api.streaming.sign_ins import SIGN_INS
from weft_api.streaming.tunnels import TUNNELS, Tunnel
from weft_api.telemetry import METRICS
from weft_api.tunnels import hop
from weft_api.tunnels.bridge import Bridge
from weft_api.tunnels.service import find_learner, still_allowed

router = APIRouter(prefix="/api/v1", tags=["tunnels"])

Kind = Literal["exec", "shell", "get", "put", "forward", "profile", "events"]


@router.get(
    "/jobs/{job_id}/tunnels",
    status_code=204,
    summary="Check whether a tunnel to a learner may be opened",
    responses=responses(NOT_FOUND, CONFLICT),
)
def check_tunnel(
    job_id: str, context: Ctx, who: Editor, learner: Annotated[int, Query(ge=1, le=1_000_000)] = 1
) -> None:
    """A browser does not show its pages why a WebSocket was refused. This does."""
    find_learner(context, who, job_id, learner)


@router.websocket("/jobs/{job_id}/tunnels/{kind}")
@socket_audit(audited("tunnels.{kind}", "job:{job_id}"))
async def open_tunnel(
    socket: WebSocket,
    job_id: str,
    kind: Kind,
    context: Ctx,
    who: Editor,
    learner: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> None:
    """Accepted when the learner's agent has come: then the two speak with each other (docs/into-a-job.md)."""
    attempt, rank = await run_in_threadpool(find_learner, context, who, job_id, learner)
    SIGN_INS.of(context).admit(who)
    limits = context.settings.limits
    tunnels = TUNNELS.of(context)
    host, port = socket.scope["server"]
    address = context.settings.api.peer_address or f"{f'[{host}]' if ':' in host else host}:{port}"
    owners = (
        (f"job {job_id}", limits.tunnels_per_job, "this job"),
        (
            f"user {who.user_id}",
            limits.tunnels_per_user,
            "this user",
        ),
    )
    tunnel = Tunnel(kind, attempt, rank)
    with tunnels.admitted(*owners), tunnels.waiting(tunnel):
        agent = await tunnels.call(tunnel, address)
        await socket.accept()
        signed_out = asyncio.Event()
        with SIGN_INS.of(context).watch(who, signed_out.set) as sign_in, METRICS.of(context).tunnels.track_inprogress():
            if sign_in.ended:
                signed_out.set()
            await Bridge(socket, agent, limits, partial(still_allowed, context, who)).run(signed_out)


@router.websocket("/learner/tunnels/{tunnel_id}")
async def meet_tunnel(
    socket: WebSocket, tunnel_id: str, context: Ctx, token: Token, rank: Annotated[int, Query(ge=0)]
) -> None:
    """An agent comes for a tunnel that a heartbeat's answer has asked for."""
    tunnels = TUNNELS.of(context)
    tunnel = tunnels.find(tunnel_id)
    if tunnel is None:
        place = None if hop.HEADER in socket.headers else await tunnels.place_of(tunnel_id)
        if place is None:
            raise not_found("tunnel", tunnel_id[:100])
        await hop.pass_on(socket, place, tunnel_id, rank)
        return
    if (tunnel.attempt, tunnel.rank) != (token.sha256, rank):
        raise not_found("tunnel", tunnel_id[:100])
    await socket.accept()
    if tunnel.agent.done():  # another one was quicker
        await socket.close()
        return
    tunnel.agent.set_result(socket)
    await tunnel.over.wait()
