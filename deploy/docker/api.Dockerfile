# syntax=docker/dockerfile:1
# The API. The context is the repository:  docker build -f deploy/docker/api.Dockerfile -t weft/api .
# The same image runs the migrations (python -m weft_core.store.migrate) and the set-up (python -m weft_core.setup).
#
# Dependencies come before sources, in layers of their own: a change of Weft's sources rebuilds only Weft's layer.
ARG BASE=python:3.11-slim

# The web page, made by Node from PyPI: the base image has none, and the finished one needs none.
FROM ${BASE} AS page
WORKDIR /src/dashboard
RUN python -m venv /opt/node
COPY dashboard/npm dashboard/node.lock dashboard/.npmrc dashboard/package.json dashboard/package-lock.json ./
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=cache,target=/root/.npm \
    VENV=/opt/node ./npm ci
COPY dashboard .
RUN VENV=/opt/node ./npm run build

FROM ${BASE} AS packages
ENV UV_LINK_MODE=copy
WORKDIR /src
COPY requirements/constraints.txt pyproject.toml trainer_images/pip-settings ./
# The hash of each file is checked. Beside hashes, uv takes no constraints of the machine's unless they are pins.
RUN --mount=type=cache,target=/root/.cache/pip \
    sed -n '/^uv==/,/[^\\]$/p' constraints.txt >uv.lock \
    && python -m pip install --require-hashes --requirement uv.lock
RUN --mount=type=cache,target=/root/.cache/uv \
    python -m venv --without-pip /opt/weft \
    && eval "$(python pip-settings)" && unset UV_CONSTRAINT \
    && uv pip install --python /opt/weft/bin/python --compile-bytecode --require-hashes --constraint constraints.txt \
      --requirement pyproject.toml --extra api --extra otel

FROM packages AS weft
COPY . .
COPY --from=page /src/api/weft_api/dashboard/static api/weft_api/dashboard/static
# Beside the packages, so that it is a layer without them.
RUN --mount=type=cache,target=/root/.cache/uv \
    eval "$(python pip-settings)" && unset UV_CONSTRAINT \
    && uv build --wheel --require-hashes --build-constraints requirements/constraints.txt --out-dir dist \
    && uv pip install --python /opt/weft/bin/python --prefix /opt/own --compile-bytecode --no-deps dist/*.whl

FROM ${BASE}
COPY --from=packages /opt/weft /opt/weft
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/weft weft \
    && install --directory --owner weft --group weft --mode 0700 /var/lib/weft
COPY --from=weft /opt/own /opt/weft
COPY --chmod=0755 deploy/docker/api-healthy /usr/local/bin/api-healthy
ENV PATH=/opt/weft/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WEFT_HOME=/var/lib/weft \
    WEFT_API__HOST=0.0.0.0
USER 10001:10001
WORKDIR /var/lib/weft
EXPOSE 8080
CMD ["python", "-m", "weft_api"]
