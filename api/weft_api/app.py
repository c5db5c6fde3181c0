"""The application: ``create_app(settings)``. Nothing is opened or read when this module is imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from sqlalchemy.exc import ArgumentError

from weft_api import docs
from weft_api.audit.middleware import Audited
from weft_api.audit.routes import router as audit
from weft_api.checkpoints.routes import router as checkpoints
from weft_api.code.routes import router as code
from weft_api.context import Context
from weft_api.dashboard import routes as dashboard
from weft_api.datastores.routes import router as datastores
from weft_api.deliveries.routes import router as deliveries
from weft_api.engines.installation_metrics import InstallationMetrics
from weft_api.engines.routes import router as engines
from weft_api.events.routes import router as events
from weft_api.ffdl import routes as ffdl
from weft_api.ffdl.errors import in_ffdls_form
from weft_api.ffdl.origins import Origins
from weft_api.files.routes import router as files
from weft_api.health.routes import router as health
from weft_api.http import errors
from weft_api.http.middleware import LimitedBodies, Observed
from weft_api.http.patience import PatientBodies
from weft_api.identity.routes import router as identity
from weft_api.jobs.routes import router as jobs
from weft_api.learner.reports import router as reports
from weft_api.learner.routes import router as learner
from weft_api.logs.routes import router as logs
from weft_api.metrics.routes import router as metrics
from weft_api.mlflow.errors import in_mlflows_form
from weft_api.mlflow.routes import router as mlflow
from weft_api.models.routes import router as models
from weft_api.profiles.routes import router as profiles
from weft_api.projects.routes import router as projects
from weft_api.schedules.routes import router as schedules
from weft_api.secrets.routes import router as secrets
from weft_api.sessions.routes import router as sessions
from weft_api.sweeps.routes import router as sweeps
from weft_api.telemetry import METRICS
from weft_api.tokens.routes import router as tokens
from weft_api.tunnels.routes import router as tunnels
from weft_api.users.routes import router as users
from weft_api.views.routes import router as views
from weft_core import __version__
from weft_core.catalogue import Catalogue
from weft_core.objects import Objects, StoreError
from weft_core.secrets import SecretBox
from weft_core.settings import Settings
from weft_core.store.database import Database
from weft_core.tracing import open_tracing
from weft_core.wake import Wake

_DESCRIPTION = """Deep-learning training as a service: send a manifest and a folder of code, and get a trained model in
S3.

Sign in with `Authorization: Bearer <token>`. A token belongs to one project. Errors are `application/problem+json`
(RFC 9457) with a stable `code`. Most POST requests take an `Idempotency-Key`. Lists have pages:
send `next_cursor` back as `cursor`. Browsers sign in with a cookie instead (`POST /session`)."""

_CONNECTIONS = 15
"""The connections to Postgres; a rush may open as many again. Handlers run in 40 threads, and each holds a connection
only during its transactions."""


def make_context(settings: Settings) -> Context:
    """The context for ``settings``. Connects to nothing yet.

    Raises:
        ValueError: a setting is wrong in a way that only shows when it is used (keys, URLs).
    """
    with _naming("database_url"):
        database = Database(settings.database_url.get_secret_value(), pool_size=_CONNECTIONS, confines=True)
    with _naming("redis_url"):
        wake = Wake(settings.redis_url.get_secret_value())
    with _naming("s3"):
        objects = Objects(settings.s3)
    return Context(
        settings=settings,
        database=database,
        objects=objects,
        box=SecretBox(settings.secret_keys),
        wake=wake,
        catalogue=Catalogue.load(),
        tracing=open_tracing(settings.telemetry, "weft-api"),
    )


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    """Add the name of ``setting`` to the errors of libraries."""
    try:
        yield
    except (ValueError, ArgumentError, ImportError, StoreError) as error:
        raise ValueError(f"{setting}: {error}") from error


def _in_clients_form(scope: MutableMapping[str, Any], answered: JSONResponse) -> JSONResponse:
    return in_mlflows_form(scope, in_ffdls_form(scope, answered))


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application for ``settings``. Raises ValueError for settings that can't work."""
    context = make_context(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await context.close()

    app = FastAPI(
        title="Weft",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    process_metrics = METRICS.of(context)
    process_metrics.registry.register(InstallationMetrics(context.database))
    data = (files, checkpoints, profiles, models, datastores)
    access = (secrets, sessions, tokens, users, projects, audit)
    # Routers are tried in this order, so the one with the most frequent and the cheapest calls is the first.
    for router in (
        reports,
        mlflow,
        jobs,
        code,
        logs,
        metrics,
        events,
        deliveries,
        schedules,
        sweeps,
        views,
        *data,
        *access,
        engines,
        identity,
        learner,
        tunnels,
        health,
    ):
        # Not include_router: it would build each route a second time, with the first request.
        app.router.routes += router.routes
    ffdl.install(app)
    errors.install(app, _in_clients_form)
    docs.install(app)
    dashboard.install(app)
    # The last one added is the outermost.
    app.add_middleware(LimitedBodies)
    app.add_middleware(PatientBodies)
    app.add_middleware(Audited, context=context, form=_in_clients_form)
    if settings.api.ffdl_origins:
        app.add_middleware(Origins, origins=settings.api.ffdl_origins)
    app.add_middleware(Observed, metrics=process_metrics, tracing=context.tracing)
    return app
