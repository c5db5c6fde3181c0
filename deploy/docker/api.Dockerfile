# syntax=docker/dockerfile:1
# The API. The context is the repository:  docker build -f deploy/docker/api.Dockerfile -t weft/api .
# The same image runs the migrations (python -m weft_core.store.migrate) and the set-up (python -m weft_core.setup).
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY . .
# The web page, made by Node from PyPI: the base image has none, and the finished one needs none.
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=cache,target=/root/.npm \
    python -m venv /opt/node && VENV=/opt/node dashboard/npm ci && VENV=/opt/node dashboard/npm run build
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/weft \
    && /opt/weft/bin/pip install --constraint requirements/constraints.txt ".[otel,server]"

FROM ${BASE}
COPY --from=build /opt/weft /opt/weft
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/weft weft \
    && install --directory --owner weft --group weft --mode 0700 /var/lib/weft
ENV PATH=/opt/weft/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WEFT_HOME=/var/lib/weft \
    WEFT_API__HOST=0.0.0.0
USER 10001:10001
WORKDIR /var/lib/weft
EXPOSE 8080
CMD ["python", "-m", "weft_api"]
