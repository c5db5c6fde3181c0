"""``python -m weft_embedded.run``. The package describes its input and output."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until `collect_again`

import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

import yaml
from pydantic import ValidationError

from weft_core.bundle import BundleError, check_bundle
from weft_core.engine_settings import LocalSettings
from weft_core.launch import BundleInput
from weft_core.manifest import ManifestError, ParsedManifest, parse_manifest, refuse_sweep
from weft_core.processes import collect_again
from weft_core.settings import IdentitySettings, ProfileSettings, Settings, load_settings
from weft_core.words import count
from weft_embedded.run.data_dir import LinkedData
from weft_embedded.run.folder import OutFolder, choose_folder
from weft_embedded.run.mlflow import MlflowStores
from weft_embedded.run.packages import bring_packages
from weft_embedded.run.repositories import find_repository
from weft_embedded.run.request import Request, RunError
from weft_embedded.run.runner import Ended, Job, Stop, run
from weft_embedded.run.server import LearnerServer
from weft_embedded.run.stores import find_secrets, find_stores

_ENGINE = "local"
_BROKEN_OFF_GRACE = 10.0
"""Seconds for the learners of a run whose terminal has gone."""


def main() -> int:
    collect_again()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the `weft` command handles Ctrl-C, and then sends a stop
    try:
        request = Request.model_validate_json(sys.stdin.readline())
        _serve(request)
    except ManifestError as error:
        tell("invalid", problems=[asdict(problem) for problem in error.problems])
    except (RunError, BundleError) as error:
        tell("error", message=str(error))
    except ValidationError as error:  # weft.toml, WEFT_… variables
        tell("error", message=f"settings: {error.errors()[0]['msg']}")
    return 0


def _serve(request: Request) -> None:
    settings = _settings()
    parsed, notes = _parse(request, settings)
    manifest = parsed.manifest
    bundle = check_bundle(request.code, settings.limits) if request.code is not None else None
    stores = find_stores(request, parsed)
    secrets = find_secrets(request, parsed)
    repository = find_repository(request, parsed)
    data = LinkedData(stores.folders, alone=not stores.inputs, learners=manifest.learners)
    out = choose_folder(request, manifest.name)
    news: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(news,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: news.put(Stop(request.grace)))
    with out.taken():
        spaces = {"results": out.results, "checkpoints": out.checkpoints}
        timings = settings.timings.model_copy(update={"grace": request.grace})
        packages = bring_packages(request, parsed, bundle, repository, settings, news, tell)
        archive = packages.path if packages else None
        with LearnerServer(spaces, out.incoming, request.code, data.streamed, archive).serving() as server:
            overlay = packages.bundle(server.overlay_url) if packages else None
            code = BundleInput(sha256=bundle.sha256, size=bundle.size, url=server.code_url) if bundle else None
            tell("run", name=manifest.name, learners=manifest.learners, folder=str(out.path), resumes=out.attempts > 0)
            for note in [*manifest.notes, *notes, *stores.notes]:
                tell("event", kind="note", message=note)
            started = time.monotonic()
            leftover_bytes = settings.limits.leftover_bytes
            mlflow = None
            if "MLFLOW_TRACKING_URI" not in manifest.env | secrets:
                mlflow = MlflowStores(out.mlflow.absolute(), manifest.learners)
            job = Job(manifest, stores, data, secrets, code, overlay, timings, leftover_bytes, repository, mlflow)
            ended = run(job, out, server, news, tell)
            results_here = stores.results is None
            if mlflow and results_here:
                try:
                    mlflow.keep_artifacts(out.results)
                except OSError as error:
                    tell("event", kind="warning", message=f"MLflow's artifacts stay in {out.mlflow}: {error}")
            params = mlflow.params() if mlflow else {}
            tell("end", **_end(ended, out, results_here), params=params, seconds=time.monotonic() - started)


def _settings() -> Settings:
    """The settings of weft.toml and the environment, with this machine as the only engine."""
    settings = load_settings()
    local = next((engine for engine in settings.engines.values() if engine.type == "local"), LocalSettings())
    here = {"engines": {_ENGINE: local}, "default_engine": _ENGINE}
    # Accept manifests that ask for identity tokens, although nobody issues any here.
    return settings.model_copy(update={**here, "identity": IdentitySettings(issuer="https://localhost")})


def _parse(request: Request, settings: Settings) -> tuple[ParsedManifest, list[str]]:
    """The manifest as this machine sees it, and notes about differences from its server."""
    notes = []
    try:
        written = yaml.safe_load(request.manifest)
    except yaml.YAMLError:
        written = None  # the real parser reports the problem
    named = written.get("profile") if isinstance(written, dict) else None
    if isinstance(named, str) and named not in settings.profiles:
        size = ProfileSettings(memory=2 << 30)
        settings = settings.model_copy(update={"profiles": {**settings.profiles, named: size}})
        notes.append(
            f"profile {named!r} is a server's: here each learner has {size.cpus:g} CPU and no GPU "
            f"([profiles.{named}] in weft.toml says otherwise)"
        )
    parsed = parse_manifest(request.manifest, settings, overrides={**request.overrides, "engine": _ENGINE})
    message = "weft run runs one job: leave out sweep, and give its parameters values (--set parameters.NAME=VALUE)"
    refuse_sweep(parsed, message)
    if parsed.manifest.elastic is not None:
        learners = count(parsed.manifest.learners, "learner")
        notes.append(f"elastic is left out: {learners} from the beginning to the end")
    if parsed.manifest.after:
        notes.append("after is left out: the job starts now")
    if parsed.manifest.schedule is not None or parsed.manifest.on is not None:
        notes.append("schedule and on are left out: the job starts now, once")
    if parsed.manifest.notify:
        notes.append("notify is left out")
    if parsed.manifest.identity is not None:
        notes.append("identity is left out: nobody issues tokens here, and there is no WEFT_ID_TOKEN_FILE")
    if parsed.manifest.rules:
        notes.append("rules are left out")
    return parsed, notes


def _listen(news: queue.SimpleQueue[Any]) -> None:
    """Reads later lines of standard input. Its end means that the caller is gone."""
    for line in sys.stdin:
        news.put(Stop(float(json.loads(line)["stop"])))
    news.put(Stop(_BROKEN_OFF_GRACE, "the process that started it is gone"))


def _end(ended: Ended, out: OutFolder, results_here: bool) -> dict[str, Any]:
    def there(folder: Any) -> str | None:
        return str(folder) if any(path.is_file() for path in folder.rglob("*")) else None

    return {
        "state": ended.state.value,
        "reason": ended.reason,
        "exit_code": ended.exit_code,
        "metrics": out.metrics.series,
        "metrics_file": str(out.metrics.path) if out.metrics.path.exists() else None,
        "results": there(out.results) if results_here else None,
        "checkpoints": there(out.checkpoints),
    }


_telling = threading.Lock()


def tell(what: str, /, **fields: Any) -> None:
    """One line of JSON; a reader that has gone is noticed by the end of standard input."""
    line = json.dumps({"type": what, **fields}, ensure_ascii=False) + "\n"
    with _telling:
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
