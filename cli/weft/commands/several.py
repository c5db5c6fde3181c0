"""``halt`` and ``delete``: one job, several, or all that a filter finds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import typer
from rich.markup import escape

from weft.client import Client
from weft.errors import ApiError, WeftError
from weft.exits import exit_code_of
from weft.resources.jobs import Job
from weft.ui.console import err, say
from weft.ui.jobs import job_table

_SHOWN = 20


@dataclass
class Several:
    """The jobs that are meant, each once, and what went wrong with some of them."""

    jobs: list[Job] = field(default_factory=list)
    filtered: bool = False
    """Found by a filter: their user has named none of them."""
    code: int = 0
    """The exit code of the first error."""

    @property
    def single(self) -> bool:
        """One job that was named: its errors are the command's."""
        return len(self.jobs) == 1 and not self.filtered and not self.code

    def note(self, what: str, error: WeftError) -> None:
        say(f"[red]{escape(what)}[/]: {escape(str(error))}")
        self.code = self.code or exit_code_of(error)

    def ask(self, question: str) -> None:
        """Show the jobs and ask. Raises Abort for a no, and BadParameter where there is no terminal to ask at."""
        err().print(job_table(self.jobs[:_SHOWN]))
        if len(self.jobs) > _SHOWN:
            say(f"[dim]and {len(self.jobs) - _SHOWN} more[/]")
        ask(question)

    def each(self, act: Callable[[Job], None]) -> None:
        """Do it to each job. What one refuses is told, and the others go on; a server that is away ends it."""
        if self.single:
            act(self.jobs[0])
            return
        for number, job in enumerate(self.jobs):
            try:
                act(job)
            except ApiError as error:
                self.note(job.id, error)
            except WeftError as error:
                self.note(job.id, error)
                if left := len(self.jobs) - number - 1:
                    say(f"[red]{left} more {'job was' if left == 1 else 'jobs were'} not asked[/]")
                return

    def end(self) -> None:
        """Exit with the first error's code, if there was any."""
        if self.code:
            raise typer.Exit(self.code)


def ask(question: str) -> None:
    """Raises Abort for a no, and BadParameter where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at: give --yes", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


def several(client: Client, named: Sequence[str], states: Sequence[str], labels: Sequence[str]) -> Several:
    """The jobs of these references, or all that the filter finds.

    Raises:
        BadParameter: there are both, or neither.
        WeftError: the only job that was named is not to be found, or the server is away.
    """
    if named and (states or labels):
        raise typer.BadParameter("name jobs, or give --state and --label: not both", param_hint="JOB")
    if not named and not states and not labels:
        raise typer.BadParameter("name a job, or give --state or --label", param_hint="JOB")
    if not named:
        return Several(list(client.jobs.list(state=states, label=labels)), filtered=True)
    if len(named) == 1:
        return Several([client.job(named[0])])
    found = Several()
    for one in named:
        try:
            job = client.job(one)
        except ApiError as error:
            found.note(one, error)
        else:
            if job.id not in {known.id for known in found.jobs}:
                found.jobs.append(job)
    return found
