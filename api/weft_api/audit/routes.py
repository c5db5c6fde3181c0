"""HTTP for the audit trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from weft_api.access.auth import Viewer
from weft_api.audit.schemas import AuditPage
from weft_api.audit.service import AuditFilter, list_records
from weft_api.context import Ctx
from weft_api.http.audited import audited, must_record
from weft_api.http.paging import Cursor, Limit
from weft_api.http.parameters import Since, parse_since
from weft_api.http.problems import FORBIDDEN, NOT_FOUND, responses
from weft_core.store.audit import AuditOutcome

router = APIRouter(prefix="/api/v1", tags=["audit"])

_Text = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.get(
    "/audit",
    summary="Read the audit trail (administrators, owners)",
    responses=responses(FORBIDDEN, NOT_FOUND),
    openapi_extra=audited("audit.read", read=True, installation=True),
)
def get_audit(
    context: Ctx,
    who: Viewer,
    project: Annotated[_Text, Query(description="Only records of this project.", examples=["vision"])] = "",
    user: Annotated[_Text, Query(description="Only what this user did.", examples=["ada"])] = "",
    action: Annotated[
        _Text, Query(description="Only this action, or all of a group: `jobs.halt`, `jobs`.", examples=["jobs"])
    ] = "",
    object_id: Annotated[
        str,
        Query(
            alias="object",
            max_length=310,
            pattern=r"^[^\x00]*$",
            description="Only what happened to this object: its id or name, alone or after its kind.",
            examples=["job:job-4k9x2m7qd1ze"],
        ),
    ] = "",
    outcome: Annotated[AuditOutcome | None, Query(description="Only with this outcome.", examples=["refused"])] = None,
    since: Since = None,
    until: Annotated[
        str | None,
        Query(max_length=64, description="Only before this time. The forms are those of `since`.", examples=["1h"]),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """The newest records come first. Administrators read all records; the owners of a project read those of the
    project that they are signed in to. An administrator's reading is recorded, too."""
    wanted = AuditFilter(project, user, action, object_id, outcome, parse_since(since), parse_since(until, "until"))
    if who.admin:
        must_record()
    with context.database.transaction() as session:
        return list_records(session, who, wanted, limit, cursor)
