"""``projects list|create|delete|members|add|remove|quota|share|caps|retention``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer
from rich.markup import escape

from weft.commands.common import JsonOption, client_of
from weft.commands.retention import retention
from weft.models import Caps, Quota, Share
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.times import ago
from weft.words import size

app = typer.Typer(no_args_is_help=True, help="Manage projects, their members, quotas, shares and retention.")
NameArgument = Annotated[str, typer.Argument(metavar="PROJECT", show_default=False)]
UserArgument = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
_UNITS = {"mb": 10**6, "gb": 10**9, "tb": 10**12, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


@app.command("list")
def list_projects(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List your projects; administrators see all projects."""
    projects = client_of(ctx).projects.list()
    if as_json:
        show_json([dict(project.raw) for project in projects])
        return
    made = table("NAME", "YOUR ROLE", "MEMBERS", "JOBS", "CREATED")
    for project in projects:
        jobs = f"about {project.jobs:,}" if project.jobs_estimated else str(project.jobs)
        made.add_row(escape(project.name), project.role or "–", str(project.members), jobs, ago(project.created_at))
    show(made)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    owner: Annotated[
        str | None, typer.Option(help="First owner of the project. Default: you.", show_default=False)
    ] = None,
    allow_untrusted: Annotated[
        bool, typer.Option("--allow-untrusted", help="Create it although an engine does not keep jobs apart.")
    ] = False,
) -> None:
    """Create a project (administrators)."""
    client_of(ctx).projects.create(name, owner, allow_untrusted=allow_untrusted)
    say(f"[green]✓[/] project {escape(name)} created; its members sign in with: weft login --project {escape(name)}")


@app.command("delete")
def delete(ctx: typer.Context, name: NameArgument) -> None:
    """Delete an empty project (administrators)."""
    client_of(ctx).projects.delete(name)
    say(f"[green]✓[/] project {escape(name)} deleted")


@app.command("members")
def members(ctx: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """List a project's members."""
    found = client_of(ctx).projects.members(name)
    if as_json:
        show_json([dict(member.raw) for member in found])
        return
    made = table("USER", "ROLE", "", "SINCE")
    for member in found:
        marks = {"by group": member.by_group, "disabled": member.disabled}
        notes = ", ".join(word for word, holds in marks.items() if holds)
        made.add_row(escape(member.user), member.role, notes, ago(member.since))
    show(made)


@app.command("add")
def add(
    ctx: typer.Context,
    name: NameArgument,
    user: UserArgument,
    role: Annotated[
        Literal["owner", "editor", "viewer"], typer.Option(help="Role of the user in the project.")
    ] = "editor",
) -> None:
    """Add a user to a project, or change the user's role (owners, administrators)."""
    client_of(ctx).projects.set_member(name, user, role)
    say(f"[green]✓[/] {escape(user)} is {role} in {escape(name)}")


@app.command("remove")
def remove(ctx: typer.Context, name: NameArgument, user: UserArgument) -> None:
    """Remove a member; the member's tokens for the project stop working at once."""
    client_of(ctx).projects.remove_member(name, user)
    say(f"[green]✓[/] {escape(user)} is no longer a member of {escape(name)}")


@app.command("quota")
def quota(
    ctx: typer.Context,
    name: NameArgument,
    cpus: Annotated[str | None, typer.Option(metavar="N|none", help="Number of CPUs.", show_default=False)] = None,
    gpus: Annotated[str | None, typer.Option(metavar="N|none", help="Number of GPUs.", show_default=False)] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Memory, such as 64Gb.", show_default=False)
    ] = None,
    jobs: Annotated[
        str | None, typer.Option(metavar="N|none", help="Number of jobs that run at the same time.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the limits for a project's running jobs, or change the limits that you name (administrators)."""
    projects = client_of(ctx).projects
    found = projects.quota(name)
    asked = {"cpus": cpus, "gpus": gpus, "memory": memory, "jobs": jobs}
    changes = {key: _limit(key, text) for key, text in asked.items() if text is not None}
    if changes:
        found = projects.set_quota(name, {**found.limits, **changes})
    if as_json:
        show_json(dict(found.raw))
        return
    made = table("", "USED", "LIMIT")
    for key in Quota.NAMES:
        limit = found.limits[key]
        made.add_row(key, _amount(key, found.used[key]), "none" if limit is None else _amount(key, limit))
    show(made)


@app.command("share")
def share(
    ctx: typer.Context,
    name: NameArgument,
    weight: Annotated[
        float | None, typer.Option(min=0, help="Weight among the projects; 1 at first.", show_default=False)
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="N|none", help="Guaranteed CPUs.", show_default=False)] = None,
    gpus: Annotated[str | None, typer.Option(metavar="N|none", help="Guaranteed GPUs.", show_default=False)] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Guaranteed memory, such as 64Gb.", show_default=False)
    ] = None,
    borrow: Annotated[
        bool | None,
        typer.Option("--borrow/--no-borrow", help="May its jobs hold more than that?", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a project's part in the fair share, or change what you name (administrators)."""
    projects = client_of(ctx).projects
    found = projects.share(name)
    asked = {"cpus": cpus, "gpus": gpus, "memory": memory}
    changes = {key: _limit(key, text) for key, text in asked.items() if text is not None}
    if changes or weight is not None or borrow is not None:
        found = projects.set_share(
            name,
            found.weight if weight is None else weight,
            {**found.guaranteed, **changes},
            found.borrow if borrow is None else borrow,
        )
    if as_json:
        show_json(dict(found.raw))
        return
    kept = [f"{_amount(key, value)} {key}" for key in Share.NAMES if (value := found.guaranteed[key]) is not None]
    made = table("WEIGHT", "SHARE", "USED", "GUARANTEED", "MAY HOLD MORE")
    parts = (f"{100 * part:.0f}%" for part in (found.share, found.used))
    made.add_row(f"{found.weight:g}", *parts, ", ".join(kept) or "nothing", "yes" if found.borrow or not kept else "no")
    show(made)


@app.command("caps")
def caps(
    ctx: typer.Context,
    name: NameArgument,
    role: Annotated[
        Literal["editor", "owner"], typer.Option(help="Role of the members whose cap you change.")
    ] = "editor",
    priority: Annotated[
        str | None, typer.Option(metavar="N|none", help="Highest priority of their jobs.", show_default=False)
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="N|none", help="CPUs of one member.", show_default=False)] = None,
    gpus: Annotated[str | None, typer.Option(metavar="N|none", help="GPUs of one member.", show_default=False)] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE|none", help="Memory of one member.", show_default=False)
    ] = None,
    jobs: Annotated[
        str | None, typer.Option(metavar="N|none", help="Running jobs of one member.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the caps on each member of a project, or change those that you name (owners, administrators)."""
    projects = client_of(ctx).projects
    found = projects.caps(name)
    asked = {"priority": priority, "cpus": cpus, "gpus": gpus, "memory": memory, "jobs": jobs}
    changes = {key: _limit(key, text) for key, text in asked.items() if text is not None}
    if changes:
        found = projects.set_caps(name, {**found.roles, role: {**found.roles[role], **changes}})
    if as_json:
        show_json(dict(found.raw))
        return
    made = table("", *(role.upper() for role in Caps.ROLES))
    for key in Caps.NAMES:
        limits = [found.roles[role][key] for role in Caps.ROLES]
        made.add_row(key, *("none" if limit is None else _amount(key, limit) for limit in limits))
    show(made)


@app.command("tunnels")
def tunnels(
    ctx: typer.Context,
    name: NameArgument,
    allowed: Annotated[
        bool | None, typer.Option("--allow/--forbid", help="May editors go into running jobs?", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether a project's editors may go into its running jobs, or set it (owners, administrators).

    This is about weft exec, weft shell, weft cp and weft forward.
    """
    projects = client_of(ctx).projects
    found = projects.tunnels(name) if allowed is None else projects.set_tunnels(name, allowed)
    if as_json:
        show_json({"allowed": found})
    else:
        say(f"editors {'may' if found else 'may not'} go into the running jobs of {escape(name)}")


app.command("retention")(retention)


def _limit(name: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    unit = number[2] if number else ""
    if number is None or (unit and (name != "memory" or unit not in _UNITS)):
        wanted = "a size such as 64Gb or 512MiB" if name == "memory" else "a number"
        raise typer.BadParameter(f"{text!r} is neither {wanted} nor none", param_hint=f"--{name}")
    value = float(number[1]) * _UNITS.get(unit, 1)
    return value if name == "cpus" else int(value)


def _amount(name: str, value: float) -> str:
    return size(int(value)) if name == "memory" else f"{value:g}"
