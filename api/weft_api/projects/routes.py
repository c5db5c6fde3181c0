"""HTTP for projects, members, quotas and shares."""

from __future__ import annotations

from fastapi import APIRouter

from weft_api.access.auth import Admin, Viewer
from weft_api.context import Ctx
from weft_api.http.audited import audited
from weft_api.http.idempotency import KeyHeader, once
from weft_api.http.problems import (
    CONFLICT,
    EXISTS,
    FORBIDDEN,
    IDEMPOTENCY_CONFLICT,
    NOT_FOUND,
    STORE_UNAVAILABLE,
    responses,
)
from weft_api.projects import retention, service
from weft_api.projects.schemas import (
    CapsBody,
    MemberList,
    MemberName,
    NewProject,
    ProjectList,
    ProjectName,
    ProjectView,
    QuotaBody,
    QuotaView,
    RetentionBody,
    RetentionView,
    RoleBody,
    ShareBody,
    ShareView,
    TunnelsBody,
)

router = APIRouter(prefix="/api/v1", tags=["projects"])


@router.get(
    "/projects", summary="List your projects", openapi_extra=audited("projects.list", read=True, installation=True)
)
def get_projects(context: Ctx, who: Viewer) -> ProjectList:
    """Administrators see all projects."""
    with context.database.transaction() as session:
        return ProjectList(projects=service.list_projects(session, who))


@router.post(
    "/projects",
    status_code=201,
    summary="Create a project (administrators)",
    responses=responses(FORBIDDEN, EXISTS, IDEMPOTENCY_CONFLICT),
    openapi_extra=audited("projects.create", "project", installation=True),
)
def post_project(body: NewProject, context: Ctx, who: Admin, key: KeyHeader = None) -> ProjectView:
    request = once(context.settings, key, "POST /projects", body.model_dump())
    return service.create_project(context, who, body, request)


@router.delete(
    "/projects/{name}",
    status_code=204,
    summary="Delete an empty project (administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND, CONFLICT, STORE_UNAVAILABLE),
    openapi_extra=audited("projects.delete", "project:{name}", installation=True),
)
def delete_project(name: ProjectName, context: Ctx, who: Viewer) -> None:
    service.delete_project(context, who, name)


@router.get(
    "/projects/{name}/members",
    summary="List a project's members",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("members.list", "project:{name}", read=True, installation=True),
)
def get_members(name: ProjectName, context: Ctx, who: Viewer) -> MemberList:
    with context.database.transaction() as session:
        return MemberList(members=service.list_members(session, who, name))


@router.put(
    "/projects/{name}/members/{user}",
    summary="Add a member, or change a member's role (owners, administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND, CONFLICT),
    openapi_extra=audited("members.set", "member:{name}/{user}", installation=True),
)
def put_member(name: ProjectName, user: MemberName, body: RoleBody, context: Ctx, who: Viewer) -> MemberList:
    with context.database.transaction() as session:
        service.set_member(session, who, name, user, body.role)
        session.flush()
        return MemberList(members=service.list_members(session, who, name))


@router.delete(
    "/projects/{name}/members/{user}",
    status_code=204,
    summary="Remove a member (owners, administrators), or leave a project",
    responses=responses(FORBIDDEN, NOT_FOUND, CONFLICT),
    openapi_extra=audited("members.remove", "member:{name}/{user}", installation=True),
)
def delete_member(name: ProjectName, user: MemberName, context: Ctx, who: Viewer) -> None:
    with context.database.transaction() as session:
        service.remove_member(session, who, name, user)


@router.get(
    "/projects/{name}/quota",
    summary="Show a project's quota and its use",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("quotas.show", "project:{name}", read=True, installation=True),
)
def get_quota(name: ProjectName, context: Ctx, who: Viewer) -> QuotaView:
    with context.database.transaction() as session:
        return service.show_quota(session, who, name)


@router.put(
    "/projects/{name}/quota",
    summary="Set a project's quota (administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("quotas.set", "project:{name}", installation=True),
)
def put_quota(name: ProjectName, body: QuotaBody, context: Ctx, who: Viewer) -> QuotaView:
    """A field that is missing or null has no limit. Running jobs go on. The queue follows the new quota within
    seconds."""
    with context.database.transaction() as session:
        return service.set_quota(session, who, name, body)


@router.get(
    "/projects/{name}/share",
    summary="Show a project's part in the fair share",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("shares.show", "project:{name}", read=True, installation=True),
)
def get_share(name: ProjectName, context: Ctx, who: Viewer) -> ShareView:
    with context.database.transaction() as session:
        return service.show_share(context, session, who, name)


@router.put(
    "/projects/{name}/share",
    summary="Set a project's part in the fair share (administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("shares.set", "project:{name}", installation=True),
)
def put_share(name: ProjectName, body: ShareBody, context: Ctx, who: Viewer) -> ShareView:
    """The queue follows within seconds."""
    with context.database.transaction() as session:
        return service.set_share(context, session, who, name, body)


@router.get(
    "/projects/{name}/caps",
    summary="Show the caps on a project's members",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("caps.show", "project:{name}", read=True, installation=True),
)
def get_caps(name: ProjectName, context: Ctx, who: Viewer) -> CapsBody:
    with context.database.transaction() as session:
        return service.show_caps(session, who, name)


@router.put(
    "/projects/{name}/caps",
    summary="Set the caps on a project's members (owners, administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("caps.set", "project:{name}", installation=True),
)
def put_caps(name: ProjectName, body: CapsBody, context: Ctx, who: Viewer) -> CapsBody:
    """Running jobs go on. A new cap on the priority holds for jobs that are submitted from now on."""
    with context.database.transaction() as session:
        return service.set_caps(session, who, name, body)


@router.get(
    "/projects/{name}/tunnels",
    summary="Show whether a project's editors may go into its running jobs",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("project_tunnels.show", "project:{name}", read=True, installation=True),
)
def get_tunnels(name: ProjectName, context: Ctx, who: Viewer) -> TunnelsBody:
    with context.database.transaction() as session:
        return TunnelsBody(allowed=service.find_project(session, who, name).tunnels)


@router.put(
    "/projects/{name}/tunnels",
    summary="Set whether a project's editors may go into its running jobs (owners, administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("project_tunnels.set", "project:{name}", installation=True),
)
def put_tunnels(name: ProjectName, body: TunnelsBody, context: Ctx, who: Viewer) -> TunnelsBody:
    """Tunnels that are open are closed within seconds."""
    with context.database.transaction() as session:
        service.owned_project(session, who, name).tunnels = body.allowed
    return body


@router.get(
    "/projects/{name}/retention",
    summary="Show the retention of a project",
    responses=responses(NOT_FOUND),
    openapi_extra=audited("retention.show", "project:{name}", read=True, installation=True),
)
def get_retention(name: ProjectName, context: Ctx, who: Viewer) -> RetentionView:
    with context.database.transaction() as session:
        return retention.show(context, session, who, name)


@router.put(
    "/projects/{name}/retention",
    summary="Set the retention of a project (owners, administrators)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("retention.set", "project:{name}", installation=True),
)
def put_retention(name: ProjectName, body: RetentionBody, context: Ctx, who: Viewer) -> RetentionView:
    """Workers remove the rest within minutes, and **it can't be brought back**. Nothing is removed that a live job or a
    model's version needs, nor of jobs that ended within the last day. Only an administrator may have a project keep
    more than the installation's setting."""
    with context.database.transaction() as session:
        return retention.change(context, session, who, name, body)
