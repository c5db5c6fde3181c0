# syntax=docker/dockerfile:1
# The worker. The context is the repository:  docker build -f deploy/docker/worker.Dockerfile -t weft/worker .
#
# With an engine of type `local`, learners run inside this container: hence the compiler (Horovod is built on first use)
# and the whole Python. For other engines give a slim base:  --build-arg BASE=python:3.11-slim --build-arg TOOLS=
#
# Dependencies come before sources, in layers of their own: a change of Weft's sources rebuilds only Weft's layer.
ARG BASE=python:3.11
ARG SLIM=python:3.11-slim

FROM ${SLIM} AS packages
ENV UV_LINK_MODE=copy
WORKDIR /src
COPY requirements/constraints.txt pyproject.toml trainer_images/pip-settings ./
# The hash of each file is checked. Beside hashes, uv takes no constraints of the machine's unless they are pins.
RUN --mount=type=cache,target=/root/.cache/pip \
    sed -n '/^uv==/,/[^\\]$/p' constraints.txt >uv.lock \
    && python -m pip install --require-hashes --requirement uv.lock
# The engine `local` brings py-spy (of the extra `trainer`) to its learners, and makes their environments with uv.
RUN --mount=type=cache,target=/root/.cache/uv \
    python -m venv --without-pip /opt/weft \
    && eval "$(python pip-settings)" && unset UV_CONSTRAINT \
    && uv pip install --python /opt/weft/bin/python --compile-bytecode --require-hashes --constraint constraints.txt \
      --requirement pyproject.toml --extra otel --extra trainer --extra worker \
    && uv pip install --python /opt/weft/bin/python --compile-bytecode --require-hashes --requirement uv.lock

FROM packages AS weft
COPY . .
# Beside the packages, so that it is a layer without them.
RUN --mount=type=cache,target=/root/.cache/uv \
    eval "$(python pip-settings)" && unset UV_CONSTRAINT \
    && uv build --wheel --require-hashes --build-constraints requirements/constraints.txt --out-dir dist \
    && uv pip install --python /opt/weft/bin/python --prefix /opt/own --compile-bytecode --no-deps dist/*.whl

FROM ${BASE}
ARG TOOLS="cmake g++ make"
RUN if [ -n "${TOOLS}" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends ${TOOLS} && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=packages /opt/weft /opt/weft
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/weft weft \
    && install --directory --owner weft --group weft --mode 0700 /var/lib/weft /var/lib/weft/tmp
COPY --from=weft /opt/own /opt/weft
COPY --chmod=0755 deploy/docker/worker-healthy /usr/local/bin/worker-healthy
ENV PATH=/opt/weft/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/weft \
    WEFT_HOME=/var/lib/weft \
    WEFT_ENVIRONMENTS_DIR=/var/lib/weft/environments \
    TMPDIR=/var/lib/weft/tmp
USER 10001:10001
WORKDIR /var/lib/weft
CMD ["python", "-m", "weft_workers"]
