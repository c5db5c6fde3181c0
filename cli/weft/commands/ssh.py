"""``ssh-config`` and ``ssh-proxy``: learners as hosts of an SSH client, and of editors that work through SSH."""

from __future__ import annotations

import re
import shlex
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from weft.commands.common import client_of
from weft.errors import WeftError
from weft.profile import profile_path

app = typer.Typer()

_SUFFIX = ".weft"
_CONFIG = """\
# Learners of running Weft jobs: `ssh JOB.weft`, `ssh 2.JOB.weft` for learner 2.
Host *{suffix}
    ProxyCommand {command} %n
    HostKeyAlias {alias}
    UserKnownHostsFile {known}
    StrictHostKeyChecking yes
    PreferredAuthentications none
    ServerAliveInterval 20
"""


def _folder() -> Path:
    return profile_path().parent / "ssh"


def _need_asyncssh() -> None:
    if find_spec("asyncssh") is None:
        raise WeftError("SSH needs a package more: pip install 'weft[ssh]'")


@app.command("ssh-config")
def ssh_config(ctx: typer.Context) -> None:
    """Print the lines of ~/.ssh/config with which `ssh JOB.weft` leads into a job.

    It holds for every job, and for VS Code and other editors that work through
    SSH. The learner needs no sshd. Example:
    weft ssh-config >> ~/.ssh/config
    """
    _need_asyncssh()
    from weft.ssh import HOST_KEY_NAME, host_key

    host_key(_folder())
    options = ctx.find_root().obj or {}
    chosen = [word for name in ("url", "profile") if options.get(name) for word in (f"--{name}", str(options[name]))]
    script = Path(sys.executable).with_name("weft")
    program = [str(script)] if script.exists() else [sys.executable, "-c", "from weft.main import run; run()"]
    command = shlex.join([*program, *chosen, "ssh-proxy"])
    known = str(_folder() / "known_hosts")
    print(_CONFIG.format(suffix=_SUFFIX, command=command, alias=HOST_KEY_NAME, known=known), end="")


@app.command("ssh-proxy")
def ssh_proxy(
    ctx: typer.Context,
    host: Annotated[str, typer.Argument(metavar="[N.]JOB[.weft]", help="The job, and the number of the learner.")],
) -> None:
    """Serve SSH to the client that starts it: the ProxyCommand of `weft ssh-config`."""
    _need_asyncssh()
    from weft.ssh import host_key, serve

    found = re.fullmatch(r"(?:(\d{1,6})\.)?(.+)", host.removesuffix(_SUFFIX))
    assert found is not None  # any name fits
    client = client_of(ctx)
    job = client.job(found[2])
    serve(partial(client.jobs.tunnel, job.id, learner=int(found[1] or 1)), host_key(_folder()))
