"""HTTP for engines, the image catalogue and the manifest's schema."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from weft_api.access.auth import Viewer
from weft_api.context import Ctx
from weft_api.engines.blames import forgive, list_blames
from weft_api.engines.room import Size, show_room
from weft_api.engines.schemas import BlameList, CatalogueView, EngineDetail, EngineList, Forgiven, RoomView, UsageView
from weft_api.engines.service import list_engines, show_catalogue, show_engine
from weft_api.engines.usage import MOST_HOURS, Span, as_csv, show_usage
from weft_api.http.audited import audited, must_record
from weft_api.http.parameters import parse_since
from weft_api.http.problems import FORBIDDEN, NOT_FOUND, responses
from weft_core.manifest import manifest_schema

router = APIRouter(prefix="/api/v1", tags=["engines"])


@router.get("/engines", summary="List engines with their load")
def get_engines(context: Ctx, _: Viewer) -> EngineList:
    with context.database.transaction() as session:
        return EngineList(engines=list_engines(context, session))


@router.get("/engines/{name}", summary="Show an engine with its nodes and waiting jobs", responses=responses(NOT_FOUND))
def get_engine(name: str, context: Ctx, who: Viewer) -> EngineDetail:
    with context.database.transaction() as session:
        return show_engine(context, who.scope(session), name)


@router.get("/engines/{name}/room", summary="Count the learners that fit", responses=responses(NOT_FOUND))
def get_room(
    name: str,
    context: Ctx,
    who: Viewer,
    cpus: Annotated[float, Query(ge=0, le=1e6, description="CPUs of one learner.", examples=[4])] = 0,
    gpus: Annotated[int, Query(ge=0, le=10_000, description="GPUs of one learner.", examples=[1])] = 0,
    memory: Annotated[int, Query(ge=0, le=1 << 50, description="Memory of one learner in bytes.")] = 0,
    gpu_type: Annotated[str | None, Query(max_length=200, description="The type of its GPUs.")] = None,
) -> RoomView:
    """An estimate before a submit: how many learners of this size fit, node by node. Jobs that wait come first, and
    quotas, other resources and the rules of a profile about nodes do not count here."""
    with context.database.transaction() as session:
        return show_room(context, who.scope(session), name, Size(cpus, gpus, memory, gpu_type))


@router.get(
    "/engines/{name}/blames",
    summary="List the jobs that blame an engine's nodes (administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("engines.blames", "engine:{name}", read=True, installation=True),
)
def get_blames(name: str, context: Ctx, who: Viewer) -> BlameList:
    """The newest 200 come first."""
    must_record()
    with context.database.transaction() as session:
        return list_blames(context, session, who, name)


@router.post(
    "/engines/{name}/nodes/{node}/forgive",
    summary="Forgive a node (administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("engines.forgive", "node:{node}", installation=True),
)
def post_forgive(name: str, node: str, context: Ctx, who: Viewer) -> Forgiven:
    """The jobs that blame the node so far count no more, so that it gets learners again."""
    with context.database.transaction() as session:
        return forgive(context, session, who, name, node)


Hours = Annotated[int, Query(ge=1, le=MOST_HOURS, description="Length of the time until now, in hours.", examples=[24])]
From = Annotated[
    str | None,
    Query(
        max_length=64,
        description="The beginning of the time, instead of `hours`: ISO 8601, milliseconds since the epoch, or a span "
        "until now such as `7d`.",
        examples=["7d"],
    ),
]
Until = Annotated[str | None, Query(max_length=64, description="The end of the time; now, if it is left out.")]


def asked_span(hours: Hours = 24, since: From = None, until: Until = None) -> Span:
    """The time that a question about the use is about."""
    return Span(hours, parse_since(since), parse_since(until, "until"))


Everybody = Annotated[bool, Query(description="Users of all projects, for administrators.")]


@router.get("/usage", summary="Show the use of the engines over time", responses=responses(FORBIDDEN))
def get_usage(
    context: Ctx,
    who: Viewer,
    span: Annotated[Span, Depends(asked_span)],
    everybody: Everybody = False,
) -> UsageView:
    """The CPUs and GPUs that attempts held, from their admission until their learners were gone. The use of an engine
    is that of all projects; the users are those of the caller's project."""
    with context.database.transaction() as session:
        return show_usage(session, who, span, everybody)


@router.get(
    "/usage/export",
    summary="Download the use of each user as CSV",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **responses(FORBIDDEN)},
)
def export_usage(
    context: Ctx,
    who: Viewer,
    span: Annotated[Span, Depends(asked_span)],
    everybody: Everybody = False,
) -> Response:
    """The columns are project, user, since, until, attempts, cpu_hours and gpu_hours."""
    with context.database.transaction() as session:
        text = as_csv(show_usage(session, who, span, everybody))
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
    return Response(text, media_type="text/csv", headers=headers)


@router.get("/catalogue", summary="List the images that manifests can name")
def get_catalogue(context: Ctx, _: Viewer) -> CatalogueView:
    with context.database.transaction() as session:
        return show_catalogue(context, session)


@router.get("/schema/manifest", summary="Get the JSON schema of manifests, for editors")
def get_schema() -> dict[str, Any]:
    return manifest_schema()
