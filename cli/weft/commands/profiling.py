"""``profile``: where a running program spends its time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weft.collectives import latest
from weft.commands.common import JobArgument, JsonOption, client_of
from weft.errors import WeftError
from weft.models.profiles import Profile, ProfileFile
from weft.resources.jobs import Job
from weft.stacks import hottest
from weft.ui.console import say, show, show_json
from weft.ui.jobs import table
from weft.ui.progress import bar
from weft.ui.times import moment
from weft.words import count, size

app = typer.Typer()

_SHOWN = 5


@app.command("profile")
def profile(
    ctx: typer.Context,
    job: JobArgument,
    steps: Annotated[int, typer.Option("--steps", min=1, max=100, help="Steps that PyTorch's profiler records.")] = 10,
    learner: Annotated[int, typer.Option("--learner", "-n", min=1, help="Number of the learner, from 1.")] = 1,
    everyone: Annotated[bool, typer.Option("--all", help="Profile all learners.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=1,
            max=600,
            help="End after this time. Default: 300 with PyTorch, 30 without.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the files.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the profiles of the job.")] = False,
    get: Annotated[str | None, typer.Option("--get", metavar="ID", help="Download a profile of the list.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Record where a running program spends its time.

    PyTorch's profiler records the next steps, as a trace that Perfetto
    (https://ui.perfetto.dev) opens; py-spy records stacks, also without
    PyTorch. The files go into a folder, and stay at the job for its page.
    Example: weft profile JOB --steps 20
    """
    client = client_of(ctx)
    found = client.job(job)
    if listed:
        _list(found, as_json)
        return
    if output is not None:
        _check(output)
    if get is not None:
        made = client.jobs.profiles.get(found.id, get)
    else:
        learners = range(1, found.learners + 1) if everyone else [learner]
        made = client.jobs.profiles.record(
            found.id, learners=learners, steps=steps, seconds=seconds, say=lambda text: say(escape(text))
        )
    for text in made.missing:
        say(f"[yellow]![/] {escape(text)}")
    target = output or Path(f"profile-{made.id}")
    _download(found, made, target)
    if as_json:
        show_json({**made.raw, "missing": list(made.missing), "folder": str(target)})
        return
    _summarize(made, target)
    say(f"[green]✓[/] {count(len(made.files), 'file')}; the page of the job shows the stacks")
    print(target)


def _list(job: Job, as_json: bool) -> None:
    profiles = job.profiles()
    if as_json:
        show_json([dict(profile.raw) for profile in profiles])
        return
    if not profiles:
        say(f"{job.id} ({job.state}) has no profiles")
        return
    made = table("ID", "STORED", "LEARNERS", "FILES", "SIZE", numbers=("LEARNERS", "FILES", "SIZE"))
    for profile in profiles:
        learners = len({file.learner for file in profile.files})
        whole = sum(file.size for file in profile.files)
        made.add_row(profile.id, moment(profile.stored), str(learners), str(len(profile.files)), size(whole))
    show(made)


def _check(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WeftError(f"{target} exists already and is not an empty folder; choose another --output")


def _download(job: Job, profile: Profile, target: Path) -> None:
    _check(target)
    with bar(profile.id, sum(file.size for file in profile.files)) as report:
        for file in profile.files:
            path = target / f"learner-{file.learner}" / _name(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            job.download_profile(file, path, report)


def _name(path: str) -> str:
    """The server's own rule for names, once more: nothing of an answer may lead out of the folder."""
    name = path.rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name:
        raise WeftError(f"the server names a file {path!r}")
    return name


def _summarize(profile: Profile, target: Path) -> None:
    for file in profile.files:
        if file.kind != "stacks":
            continue
        text = _read(file, target)
        say(f"learner {file.learner}, {escape(file.process)}: the main thread was in")
        for call, share in hottest(text, _SHOWN):
            say(f"  {share:4.0%}  {escape(call)}")
    _compare(profile, target)


def _compare(profile: Profile, target: Path) -> None:
    """Which ranks the others wait for."""
    texts = {
        int(file.process.removeprefix("rank-")): _read(file, target)
        for file in profile.files
        if file.kind == "collectives" and file.process.startswith("rank-")
    }
    found = latest(texts)
    if found is None:
        return
    say(f"{count(found.count, 'collective')} of {count(len(found.ranks), 'rank')}, the latest ranks first:")
    for rank in found.ranks[:_SHOWN]:
        say(f"  rank {rank.rank}  entered {rank.last:4.0%} last, {1000 * rank.seconds:.1f} ms after the first rank")


def _read(file: ProfileFile, target: Path) -> str:
    return (target / f"learner-{file.learner}" / _name(file.path)).read_text(errors="replace")
