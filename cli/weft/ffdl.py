"""The command ``ffdl``: FfDL's command lines with FfDL's output, for scripts that read it.

Errors go to stderr, and the exit codes are those of ``weft``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.commands import ffdl as pages
from weft.commands import train as starting
from weft.commands import version as versions
from weft.commands.common import client_of
from weft.commands.following import interruptible
from weft.main import main
from weft.models import LogLine
from weft.ui.ansi import shown

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="FfDL's command line for a Weft server; `weft` can do more. DLAAS_URL, DLAAS_USERNAME and DLAAS_PASSWORD "
    "name the server and the credentials.",
)
app.command("init", help="Create a project with a manifest.")(starting.init)
app.command("loglines", help="View log lines.")(pages.loglines)
app.command("emetrics", help="View evaluation metrics.")(pages.emetrics)
app.command("version", help="Show the versions of this client and of the server.")(versions.version)

ModelId = Annotated[str, typer.Argument(metavar="MODEL_ID", show_default=False)]
_COLUMNS = ("ID", "Name", "Framework", "Training status", "Submitted", "Completed")


@app.command("train")
def train(
    ctx: typer.Context,
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST_FILE", show_default=False)],
    code: Annotated[Path, typer.Argument(metavar="(MODEL_DEFINITION_ZIP|MODEL_DEFINITION_DIR)", show_default=False)],
) -> None:
    """Train a model."""
    what = "model file" if ".zip" in code.name else "model files in"
    _say(f"Deploying model with manifest '{manifest.name}' and {what} '{code}'...")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job = client_of(ctx).train(manifest, code)
    for warning in caught:
        print(warning.message, file=sys.stderr)
    _say(f"Model ID: {job.id}\nOK")


@app.command("list")
def list_models(ctx: typer.Context) -> None:
    """List all models."""
    _say("Getting all models ...")
    models = client_of(ctx).jobs.ffdl("/models")["models"]
    rows = [_COLUMNS, *map(_row, models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _say("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))
    _say(f"\n{len(models)} records found.")


def _row(model: Mapping[str, Any]) -> tuple[str, ...]:
    status = model["training"]["training_status"]
    times = (_time(status["submitted"]), _time(status["completed"]))
    return (model["model_id"], model["name"], _framework(model), status["status"], *times)


@app.command("show")
def show(ctx: typer.Context, model_id: ModelId, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Get detailed information about a model and its training."""
    _say(f"Getting model '{model_id}'...")
    client = client_of(ctx)
    model = client.jobs.ffdl(f"/models/{client.job(model_id).id}")
    if as_json:
        print(json.dumps({"Payload": model}, indent="\t"))
        return
    training, status = model["training"], model["training"]["training_status"]
    sizes = f"{training['cpus']:.2f} CPUs | {training['gpus']:.2f} GPUs | {training['memory']:.2f}"
    _say(f"Id: {model['model_id']}\nModel definition:")
    _say(f"  Name: {model['name']}\n  Description: {model['description']}\n  Framework: {_framework(model)}")
    _say(f"Training:\n  Status: {status['status']}\n  Submitted: {_time(status['submitted'])}")
    _say(f"  Completed: {_time(status['completed'])}")
    _say(f"  Resources: {sizes} {training['memory_unit']} Mem | {training['learners']} node(s)")
    _say(f"  Command: {training['command'].strip()}\n  Input data : {','.join(training['input_data'])}")
    _say(f"  Output data: {','.join(training['output_data'])}\nData stores:")
    for store in model["data_stores"]:
        _say(f"  ID: {store['data_store_id']}\n  Type: {store['type']}\n  Connection: ")
        for key, value in store["connection"].items():
            _say(f"    {key}: {value}")
    _say("Summary metrics:")
    for metric in model["metrics"]:
        _say(f"  Type: {metric['type']} {{\n  \tIteration: {metric['iteration']}\n  \tTimestamp: {metric['timestamp']}")
        for key, value in metric["Values"].items():
            _say(f"  \t{key}: {value}")
        _say("  }")
    _say("OK")


@app.command("logs")
def logs(
    ctx: typer.Context,
    model_id: ModelId,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until the training has ended.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print evaluation metrics instead of lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print metrics as JSON.")] = False,
) -> None:
    """View the log."""
    job = client_of(ctx).job(model_id)
    if not as_json:
        what = "evaluation metrics" if metrics else "model training logs"
        _say(f"Getting {what} for '{model_id}'...")

    def work() -> None:
        if metrics:
            pages.print_metrics(job, follow=follow, as_json=as_json)
            return
        for line in job.follow_logs() if follow else job.logs():
            if isinstance(line, LogLine):
                _say(line.text)

    interruptible(job, work)


@app.command("download")
def download(
    ctx: typer.Context,
    model_id: ModelId,
    definition: Annotated[bool, typer.Option("--definition", help="Download the submitted code.")] = False,
    trained_model: Annotated[bool, typer.Option("--trainedmodel", help="Download the results.")] = False,
    filename: Annotated[Path | None, typer.Option("--filename", help="Name of the zip.", show_default=False)] = None,
) -> None:
    """Download the model definition or the trained model, as a zip."""
    if definition == trained_model:
        raise typer.BadParameter("specify either --definition or --trainedmodel", param_hint="--definition")
    job = client_of(ctx).job(model_id)
    _say(f"Getting {'model definition' if definition else 'trained model'} for '{model_id}'...")
    target = filename or Path(f"{job.id}-{'definition' if definition else 'trainedmodel'}.zip")
    if definition:
        job.download_definition(target)
    else:
        job.download_trained_model(target)
    _say(f"Downloaded file: {target}\nOK")


@app.command("halt")
def halt(ctx: typer.Context, model_id: ModelId) -> None:
    """Halt a training."""
    _say(f"Halting training job '{model_id}'...")
    client_of(ctx).job(model_id).halt()
    _say("OK")


@app.command("delete")
def delete(ctx: typer.Context, model_id: ModelId) -> None:
    """Delete a model, without asking for confirmation."""
    _say(f"Deleting model '{model_id}'...")
    client_of(ctx).job(model_id).delete()
    _say("OK")


def _framework(model: Mapping[str, Any]) -> str:
    return f"{model['framework']['name']}:{model['framework']['version']}"


def _time(text: str) -> str:
    """``2026-01-31 08:15:02.5 +0000 UTC`` as the client showed it."""
    return f"{datetime.fromisoformat(text[:19]):%a, %d %b %Y %H:%M:%S} UTC" if text else "N/A"


def _say(text: str) -> None:
    print("\n".join(shown(line, colours=True) for line in text.split("\n")), flush=True)


def run(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    sys.exit(main(list(arguments) if arguments is not None else None, app, "ffdl"))
