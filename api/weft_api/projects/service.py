"""Keeping projects, members, quotas and shares. Only members and administrators can find a project."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import ScalarSelect, case, delete, func, literal, select
from sqlalchemy.orm import Session

from weft_api.access.auth import Principal, revoke_all
from weft_api.context import Context
from weft_api.http.audited import about, about_project, must_record
from weft_api.http.idempotency import Once
from weft_api.http.problems import CONFLICT, EXISTS, FORBIDDEN, Problem, invalid, not_found
from weft_api.projects.schemas import (
    CapsBody,
    GuaranteedBody,
    MemberView,
    NewProject,
    ProjectView,
    QuotaBody,
    QuotaView,
    ShareBody,
    ShareView,
    UsedView,
)
from weft_core.ids import new_id
from weft_core.objects import code_key, mlflow_prefix
from weft_core.setup import share_datastore
from weft_core.store.backups import may_delete
from weft_core.store.counts import MOST_COUNTED, estimates
from weft_core.store.models import Base, CodeBundle, Datastore, EngineStatus, Job, Member, Model, Project, Secret, User
from weft_core.store.queue import note_change_everywhere, note_roles
from weft_core.store.quotas import Quota, usage
from weft_core.store.row_security import across_projects
from weft_core.store.shares import averages

_HELD: dict[str, type[Base]] = {"job": Job, "model": Model, "secret": Secret}
_ORDER = {"owner": 0, "editor": 1, "viewer": 2}


def list_projects(session: Session, who: Principal) -> list[ProjectView]:
    """The projects that the user is a member of; an administrator sees all."""
    own = select(Member.role).where(Member.project_id == Project.id, Member.user_id == who.user_id).scalar_subquery()
    people = select(func.count()).select_from(Member).join(User, User.id == Member.user_id)
    people = people.where(Member.project_id == Project.id, User.service_of.is_(None)).correlate(Project)
    query = select(Project, own, people.scalar_subquery(), _jobs()).order_by(Project.name)
    if not who.admin:
        query = query.where(own.is_not(None))
    rows = session.execute(query).all()
    more = estimates(session, "project_id") if any(jobs > MOST_COUNTED for *_, jobs in rows) else {}
    views = [
        ProjectView(
            name=row.name,
            role=role,
            members=members,
            jobs=max(jobs, more.get(row.id, 0)) if jobs > MOST_COUNTED else jobs,
            jobs_estimated=jobs > MOST_COUNTED,
            created_at=row.created_at,
        )
        for row, role, members, jobs in rows
    ]
    if any(view.role is None for view in views):
        must_record()
    return views


def create_project(context: Context, who: Principal, body: NewProject, once: Once) -> ProjectView:
    """Make a project with its first owner.

    Raises:
        Problem: already_exists, invalid_request for an unknown owner; conflict, if jobs would not be kept apart.
    """
    with context.database.transaction() as session:
        made = new_id("prj")
        about("project", body.name)
        claimed = once.claim(who.scope(session), made) == made
        with across_projects(session):
            if claimed:
                if session.scalars(select(Project).where(Project.name == body.name)).one_or_none():
                    raise Problem(EXISTS, f"a project named {body.name!r} exists already")
                if not body.allow_untrusted:
                    _refuse_exposure(context, session)
                owner = _user(session, body.owner or who.user)
                if owner is None:
                    raise invalid("body.owner", "there is no such user", found=body.owner)
                session.add(Project(id=made, name=body.name))
                about_project(made, body.name)
                session.flush()
                session.add(Member(project_id=made, user_id=owner.id, role="owner"))
                session.flush()
                share_datastore(session, context.settings, session.get_one(Project, made))
            return next(project for project in list_projects(session, who) if project.name == body.name)


def _refuse_exposure(context: Context, session: Session) -> None:
    """Raises Problem conflict: there is another project, and its jobs could reach those of a new project."""
    if not session.scalars(select(Project.id).limit(1)).first():
        return
    rows = session.execute(select(EngineStatus.name, EngineStatus.capacity)).all()
    reported = {name: capacity for name, capacity in rows if capacity is not None}
    engines = sorted(context.settings.engines)
    exposed = [name for name in engines if reported.get(name, {}).get("exposed")]
    unknown = [name for name in engines if name not in reported and not context.settings.engines[name].isolates_tenants]
    if exposed:
        why = (
            f"engine {exposed[0]} does not keep jobs of different projects apart: {reported[exposed[0]]['exposed']}. If"
        )
    elif unknown:
        why = (
            f"engine {unknown[0]} has not reported yet whether it keeps jobs of different projects apart. A worker "
            "reports soon after it has started: try again then (`weft engines` shows it). Or, if"
        )
    else:
        return
    advice = "create the project with allow_untrusted (`weft projects create --allow-untrusted`)"
    raise Problem(CONFLICT, f"{why} all projects trust each other, {advice}")


def delete_project(context: Context, who: Principal, name: str) -> None:
    """Forget an empty project, with its members' tokens, the code that was uploaded to it, and MLflow's runs of no job.

    Raises:
        Problem: not_found; conflict with what is still in it, or when the caller is signed in to it.
        BackupRuns: nothing may be deleted now.
    """
    with context.database.transaction() as session:
        project = _administered(session, who, name, lock=True)
        if project.id == who.project_id:
            raise Problem(CONFLICT, f"you are signed in to {name!r}: go to another project first")
        counted = {noun: _count(session, model, project.id) for noun, model in _HELD.items()}
        # The data store that the installation has given it does not count.
        own = Datastore.project_id == project.id
        counted["data store"] = (
            session.scalar(select(func.count()).select_from(Datastore).where(own, Datastore.secret_id.is_not(None)))
            or 0
        )
        held = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items() if number)
        if held:
            raise Problem(CONFLICT, f"project {name!r} is not empty: it has {held}; delete these first")
        bundles = session.scalars(select(CodeBundle.sha256).where(CodeBundle.project_id == project.id)).all()
        session.execute(delete(Datastore).where(own, Datastore.secret_id.is_(None)))
        session.delete(project)
        session.flush()
        may_delete(session)
        # Before the commit: when the store is away nothing is deleted, and deleting twice does no harm.
        context.objects.delete(code_key(project.id, sha256) for sha256 in bundles)
        context.objects.delete(info.key for info in context.objects.objects(mlflow_prefix(project.id)))


def list_members(session: Session, who: Principal, name: str) -> list[MemberView]:
    """Owners first. Raises Problem not_found."""
    project = find_project(session, who, name)
    query = (
        select(User.name, Member.role, User.disabled_at, Member.created_at, Member.issuer)
        .join(User, User.id == Member.user_id)
        .where(Member.project_id == project.id, User.service_of.is_(None))
        .order_by(case(_ORDER, value=Member.role), User.name)
    )
    return [
        MemberView(user=user, role=role, disabled=disabled is not None, since=since, by_group=issuer is not None)
        for user, role, disabled, since, issuer in session.execute(query)
    ]


def set_member(session: Session, who: Principal, name: str, user_name: str, role: str) -> None:
    """Make someone a member, or give another role.

    Raises:
        Problem: not_found; forbidden unless the caller owns the project or is an administrator; conflict when no owner
            would be left.
    """
    project = owned_project(session, who, name)
    user = _user(session, user_name)
    if user is None:
        raise not_found("user", user_name[:100])
    member = session.get(Member, (project.id, user.id))
    if member is None:
        session.add(Member(project_id=project.id, user_id=user.id, role=role))
    else:
        if member.role == "owner" and role != "owner":
            _another_owner(session, project, user)
        member.role = role
        member.issuer = None  # from now on, no group changes it
    session.flush()
    note_roles(session, [project.id])


def remove_member(session: Session, who: Principal, name: str, user_name: str) -> None:
    """Their tokens and sessions for it end at once. Raises as :func:`set_member`; all members may remove themselves."""
    own = user_name == who.user and who.limit is None
    project = _own(who, find_project(session, who, name, lock=True)) if own else owned_project(session, who, name)
    user = _user(session, user_name)
    member = session.get(Member, (project.id, user.id)) if user else None
    if user is None or member is None:
        raise not_found("member", user_name[:100])
    if member.role == "owner":
        _another_owner(session, project, user)
    session.delete(member)
    session.flush()
    note_roles(session, [project.id])
    revoke_all(session, user.id, project.id)


def show_quota(session: Session, who: Principal, name: str) -> QuotaView:
    """Raises Problem not_found."""
    project = find_project(session, who, name)
    used = UsedView(**asdict(usage(session, [project.id])[project.id]))
    return QuotaView(**asdict(Quota.of(project.quota)), used=used)


def set_quota(session: Session, who: Principal, name: str, body: QuotaBody) -> QuotaView:
    """Running jobs go on. Raises Problem not_found."""
    project = _administered(session, who, name, lock=True)
    project.quota = body.model_dump(exclude_none=True)
    session.flush()
    note_change_everywhere(session)
    return show_quota(session, who, name)


def show_share(context: Context, session: Session, who: Principal, name: str) -> ShareView:
    """Raises Problem not_found."""
    project = find_project(session, who, name)
    weights = dict(session.execute(select(Project.id, Project.weight)).all())
    used = averages(session, context.settings.fair_share, weights)
    total = sum(used.values())
    return ShareView(
        weight=project.weight,
        guaranteed=GuaranteedBody(**project.guaranteed),
        borrow=project.borrows,
        share=round(project.weight / sum(weights.values()), 4),
        used=round(used[project.id] / total, 4) if total else 0.0,
    )


def set_share(context: Context, session: Session, who: Principal, name: str, body: ShareBody) -> ShareView:
    """Raises Problem not_found; forbidden."""
    project = _administered(session, who, name, lock=True)
    project.weight, project.borrows = body.weight, body.borrow
    project.guaranteed = body.guaranteed.model_dump(exclude_none=True)
    session.flush()
    note_change_everywhere(session)
    return show_share(context, session, who, name)


def show_caps(session: Session, who: Principal, name: str) -> CapsBody:
    """Raises Problem not_found."""
    return CapsBody.model_validate(find_project(session, who, name).caps)


def set_caps(session: Session, who: Principal, name: str, body: CapsBody) -> CapsBody:
    """Raises Problem not_found; forbidden unless the caller owns the project or is an administrator."""
    project = owned_project(session, who, name)
    kept = body.model_dump(exclude_none=True)
    project.caps = {role: cap for role, cap in kept.items() if cap}
    session.flush()
    note_change_everywhere(session)
    return CapsBody.model_validate(project.caps)


# --- helpers -----------------------------------------------------------------------------------------------------


def find_project(session: Session, who: Principal, name: str, lock: bool = False) -> Project:
    """A project that the user may know of. Raises Problem not_found."""
    query = select(Project).where(Project.name == name)
    if not who.admin:
        query = query.join(Member, (Member.project_id == Project.id) & (Member.user_id == who.user_id))
    project = session.scalars(query.with_for_update(of=Project) if lock else query).one_or_none()
    if project is None:
        raise not_found("project", name[:100])
    about_project(project.id, project.name)
    if who.admin and session.get(Member, (project.id, who.user_id)) is None:
        must_record()
    return project


def _administered(session: Session, who: Principal, name: str, lock: bool = False) -> Project:
    project = find_project(session, who, name, lock)
    if not who.admin:
        raise Problem(FORBIDDEN, "this is for administrators of the installation")
    return project


def owned_project(session: Session, who: Principal, name: str) -> Project:
    """Locked, so that an owner remains when two owners remove each other."""
    project = _own(who, find_project(session, who, name, lock=True))
    member = session.get(Member, (project.id, who.user_id))
    owns = who.may("owner") if who.bound else member is not None and member.role == "owner"
    if not who.admin and not owns:
        raise Problem(FORBIDDEN, f"this needs the role owner in project {name!r}")
    return project


def _own(who: Principal, project: Project) -> Project:
    """A token of one project changes no other, whatever its user may do there. Raises Problem forbidden."""
    if who.bound and project.id != who.project_id:
        raise Problem(FORBIDDEN, f"you are signed in with a token of project {who.project!r}: use one of the project")
    return project


def _another_owner(session: Session, project: Project, user: User) -> None:
    owners = select(Member.user_id).join(User, User.id == Member.user_id).where(User.service_of.is_(None))
    others = owners.where(Member.project_id == project.id, Member.role == "owner", Member.user_id != user.id)
    if session.scalars(others.limit(1)).one_or_none() is None:
        raise Problem(CONFLICT, f"{user.name!r} is the last owner of {project.name!r}: make another one first")


def _user(session: Session, name: str) -> User | None:
    """A person: service accounts are not members."""
    return session.scalars(select(User).where(User.name == name, User.service_of.is_(None))).one_or_none()


def _jobs() -> ScalarSelect[int]:
    """How many jobs each project has, up to the most that are counted, as a column beside Project."""
    first = select(literal(1)).where(Job.project_id == Project.id).limit(MOST_COUNTED + 1).correlate(Project)
    return select(func.count()).select_from(first.lateral()).scalar_subquery()


def _count(session: Session, model: type[Base], project_id: str) -> int:
    own = model.__table__.columns["project_id"] == project_id
    return session.scalar(select(func.count()).select_from(model).where(own)) or 0
