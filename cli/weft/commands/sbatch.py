"""``sbatch``: submits a Slurm batch script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from weft.bundle import manifest_in
from weft.commands.common import JsonOption, client_of, overrides
from weft.commands.source import FrameworkOption, SetOption, Source, WithOption
from weft.commands.submitting import FollowOption, SaveOption, save_manifest, show_submitted, submit_each
from weft.errors import InvalidManifest
from weft.exits import ExitCode
from weft.script import as_job, as_yaml
from weft.slurm.batch import Batch, make_batch
from weft.slurm.directives import Directive, take_option
from weft.slurm.script import read_script
from weft.ui import problems
from weft.ui.console import say, show_json

app = typer.Typer()

_DIRECTIVES = "weft.sbatch"


class SbatchCommand(TyperCommand):
    """A command that takes the options of Slurm's ``sbatch`` besides its own, and a script with its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, directives, rest = self._sort(ctx, list(args))
        ctx.meta[_DIRECTIVES] = directives
        left: list[str] = super().parse_args(ctx, [*own, *rest[:1]])
        ctx.params["arguments"] = rest[1:]
        return left

    def _sort(self, ctx: Any, words: list[str]) -> tuple[list[str], list[Directive], list[str]]:
        """The command's own options, those of ``sbatch``, and the script with its arguments."""
        options = {name: param for param in self.get_params(ctx) for name in param.opts if name.startswith("-")}
        own: list[str] = []
        directives: list[Directive] = []
        while words and words[0].startswith("-"):
            name, equals, _ = words[0].partition("=")
            if name == "--":
                return own, directives, words[1:]
            if name not in options:
                directives += take_option(words)
            elif words[0] == "--save":  # it has a value only as --save=FILE
                own.append(f"{words.pop(0)}=")
            else:
                own.append(words.pop(0))
                if not equals and not getattr(options[name], "is_flag", False) and words:
                    own.append(words.pop(0))
        return own, directives, words

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "[OPTIONS OF SBATCH]", "SCRIPT", "[ARGUMENT]..."]


@app.command("sbatch", cls=SbatchCommand)
def sbatch(
    ctx: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The batch script.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="The script's arguments.", show_default=False)
    ] = None,
    follow: FollowOption = False,
    settings: SetOption = None,
    framework: FrameworkOption = None,
    packages: WithOption = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a Slurm batch script, with its #SBATCH directives.

    The script runs once, in learner 1, in the current folder or that of
    --chdir, which is sent as code. `srun` in it starts tasks in all learners.
    Options of sbatch come before the script and replace its directives. Directives without an effect are named, and
    unknown ones are errors. Example: `weft sbatch --nodes=2 --gpus-per-node=4 train.sh --lr 0.1`

    Prints `Submitted batch job ID`; with --parsable, only the id.
    """
    read = read_script(script)
    batch = make_batch(read.directives, ctx.meta[_DIRECTIVES])
    for note in (*read.notes, *batch.notes):
        say(f"[yellow]note:[/] {escape(note)}")
    job = as_job(
        script,
        batch.folder or Path.cwd(),
        arguments or (),
        framework=framework,
        packages=packages or (),
        keys=batch.keys,
        program=read.program,
        launcher="slurm",
    )
    if job.guess:
        say(f"[dim]framework: {job.guess.framework}, because {escape(job.guess.reason)}[/]")
    say(f"[dim]{escape(batch.summary)}[/]")
    values = overrides(settings)
    source = Source(
        job.manifest, f"the manifest of {script}", job.text, values, job.code, manifest_in(job.code), [], job
    )
    if save is not None:
        if follow or as_json or settings or batch.array:
            raise typer.BadParameter(
                "it submits nothing; leave out --follow, --json, --set and --array", param_hint="--save"
            )
        save_manifest(source, save)
        return
    if follow and batch.array:
        raise typer.BadParameter("an array has several jobs; leave out --follow or --array", param_hint="--follow")
    client = client_of(ctx)
    before = "" if batch.parsable else "Submitted batch job "
    try:
        if batch.array:
            client.validate(source.manifest, values)  # an error shows before the first job is there
            jobs: list[dict[str, Any]] = []
            for submitted in submit_each(client, source, _texts(batch, job.manifest, jobs)):
                jobs.append(dict(submitted.raw))
                if not as_json:
                    print(f"{before}{submitted.id}", flush=True)
            if as_json:
                show_json(jobs)
            elif not batch.parsable:
                say(f"[dim]all of them:[/] [command]weft list --label array={jobs[0]['labels']['array']}[/]")
            return
        [submitted] = submit_each(client, source, _texts(batch, job.manifest, []))
    except InvalidManifest as error:
        problems.explain(source.title, source.text, error.problems, error.detail)
        raise typer.Exit(ExitCode.INVALID) from None
    show_submitted(client, submitted, follow=follow, as_json=as_json, before=before)


def _texts(batch: Batch, made: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The manifests. Of an array with a limit, each job waits for the end of the job so many places before it.

    Args:
        jobs: those that have been submitted.
    """
    for number, manifest in enumerate(batch.manifests(made)):
        if 0 < batch.at_once <= number:
            earlier = {"job": jobs[number - batch.at_once]["id"], "on": "ended"}
            manifest["after"] = [*manifest.get("after", []), earlier]
        yield as_yaml(manifest)
