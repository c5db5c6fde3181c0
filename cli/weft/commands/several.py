"""The jobs of ``halt`` and ``delete``: one job, several jobs, or all jobs that match a filter."""

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
    """The selected jobs, each once, and the errors of some of them."""

    jobs: list[Job] = field(default_factory=list)
    filtered: bool = False
    """A filter selected the jobs; the user has named none of them."""
    code: int = 0
    """The exit code of the first error."""

    @property
    def single(self) -> bool:
        """Whether this is one named job; its errors end the command."""
        return len(self.jobs) == 1 and not self.filtered and not self.code

    def note(self, what: str, error: WeftError) -> None:
        say(f"[red]{escape(what)}[/]: {escape(str(error))}")
        self.code = self.code or exit_code_of(error)

    def ask(self, question: str) -> None:
        """Show the jobs and ask; raises as the function :func:`ask` does."""
        err().print(job_table(self.jobs[:_SHOWN]))
        if len(self.jobs) > _SHOWN:
            say(f"[dim]and {len(self.jobs) - _SHOWN} more[/]")
        ask(question)

    def each(self, act: Callable[[Job], None]) -> None:
        """Call ``act`` for each job. After a refusal, the loop continues; it ends if the server does not answer."""
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
                    say(f"[red]{left} more {'job' if left == 1 else 'jobs'} not tried[/]")
                return

    def end(self) -> None:
        """Exit with the code of the first error, if there was an error."""
        if self.code:
            raise typer.Exit(self.code)


def ask(question: str) -> None:
    """Ask for confirmation.

    Raises:
        Abort: the answer is no.
        BadParameter: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask; use --yes", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


def several(client: Client, named: Sequence[str], states: Sequence[str], labels: Sequence[str]) -> Several:
    """The jobs of these references, or all jobs that match the filter.

    Raises:
        BadParameter: there are both references and a filter, or neither.
        WeftError: the only named job can't be found, or the server can't be reached.
    """
    if named and (states or labels):
        raise typer.BadParameter("either name jobs, or use --state and --label", param_hint="JOB")
    if not named and not states and not labels:
        raise typer.BadParameter("name a job, or use --state or --label", param_hint="JOB")
    if not named:
        return Several(list(client.jobs.list(state=states, label=labels)), filtered=True)
    if len(named) == 1:
        return Several([client.job(named[0])])
    found = Several()
    for reference in named:
        try:
            job = client.job(reference)
        except ApiError as error:
            found.note(reference, error)
        else:
            if job.id not in {known.id for known in found.jobs}:
                found.jobs.append(job)
    return found
