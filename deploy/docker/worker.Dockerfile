# syntax=docker/dockerfile:1
# The worker. The context is the repository:  docker build -f deploy/docker/worker.Dockerfile -t weft/worker .
#
# With an engine of type `local`, learners run inside this container: hence the compiler (Horovod is built on first use)
# and the whole Python. For other engines give a slim base:  --build-arg BASE=python:3.11-slim --build-arg TOOLS=
ARG BASE=python:3.11

FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/weft \
    && /opt/weft/bin/pip install --constraint requirements/constraints.txt ".[otel,server]"

FROM ${BASE}
ARG TOOLS="cmake g++ make"
RUN if [ -n "${TOOLS}" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends ${TOOLS} && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/weft /opt/weft
COPY --chmod=0755 deploy/docker/worker-healthy /usr/local/bin/worker-healthy
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/weft weft \
    && install --directory --owner weft --group weft --mode 0700 /var/lib/weft /var/lib/weft/tmp
ENV PATH=/opt/weft/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WEFT_HOME=/var/lib/weft \
    TMPDIR=/var/lib/weft/tmp
USER 10001:10001
WORKDIR /var/lib/weft
CMD ["python", "-m", "weft_workers"]
