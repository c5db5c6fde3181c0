"""HTTP for saved views."""

from __future__ import annotations

from fastapi import APIRouter

from weft_api.access.auth import Editor, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.problems import CONFLICT, NOT_FOUND, responses
from weft_api.views import service
from weft_api.views.schemas import ViewBody, ViewList, ViewName, ViewView

router = APIRouter(prefix="/api/v1", tags=["views"])


@router.get("/views", summary="List saved views")
def get_views(context: Ctx, who: Viewer) -> ViewList:
    """The lists of jobs that the project's users have saved, by name."""
    with context.database.transaction() as session:
        return ViewList(views=service.list_views(who.scope(session)))


@router.put(
    "/views/{name}",
    summary="Save a view",
    responses=responses(CONFLICT),
    openapi_extra=audited("views.put", "view:{name}"),
)
def put_view(name: ViewName, body: ViewBody, context: Ctx, who: Editor) -> ViewView:
    """A view of this name is replaced. A project has up to 200 views."""
    with context.database.transaction() as session:
        return service.put_view(who.scope(session), who, name, body.query)


@router.delete(
    "/views/{name}",
    status_code=204,
    summary="Delete a saved view",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("views.delete", "view:{name}"),
)
def delete_view(name: ViewName, context: Ctx, who: Editor) -> None:
    with context.database.transaction() as session:
        service.delete_view(who.scope(session), name)
