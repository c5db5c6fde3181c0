# `make demo` and `make test` work on a fresh machine; README.md lists the requirements.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The web page. Built by Node (the machine's, or PyPI's: dashboard/npm) when something of it has changed.
DASHBOARD := api/weft_api/dashboard/static/index.html
DASHBOARD_SOURCES := $(shell find dashboard/src dashboard/public dashboard/scripts -type f -not -name schema.d.ts) \
  dashboard/index.html dashboard/vite.config.ts

.PHONY: audit build help sbom setup dashboard docs screenshots demo test test-fast coverage test-containers check format bench bench-check bench-logs chaos images clean
help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml requirements/constraints.txt
	@echo "installing Weft and its tools into $(VENV) …"
	@$(PYTHON) workers/weft_workers/supervision/installer.py $(VENV) requirements/constraints.txt --no-deps --no-build-isolation -e .
	@touch $@

dashboard/node_modules/.installed: dashboard/package-lock.json | $(VENV)/.installed
	@echo "installing the dashboard's tools into dashboard/node_modules …"
	@dashboard/npm ci --no-progress --loglevel=error >/dev/null
	@touch $@

$(DASHBOARD): $(DASHBOARD_SOURCES) dashboard/node_modules/.installed
	@echo "building the dashboard …"
	@dashboard/npm run --silent build
	@touch $@

dashboard: $(VENV)/.installed $(DASHBOARD) ## build the web page into the API's package

setup: $(VENV)/.installed $(DASHBOARD) ## the virtual environment that everything else uses, and the web page

# The variable silences a notice of mkdocs-material's about its successor. With --quiet, mkdocs would count no warnings.
docs: setup ## the references in docs/reference, and all pages as a site in site/
	@$(BIN)/python -m docs.generate && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: setup ## pictures of real runs for docs/screenshots, made in Chromium
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.dashboard.screenshots

# The job's environment is built beside all that comes before the job; if that fails, the job's events say so. The page
# build has a lower priority: the job waits for its environment, but nobody for the page.
demo: $(VENV)/.installed ## start the embedded stack, train on two learners, download and evaluate the model (KEEP=1: leave it running)
	@$(BIN)/weft env build horovod >/dev/null 2>&1 & building=$$!; trap 'kill $$building 2>/dev/null || true' EXIT; \
	  nice -n 15 $(MAKE) --no-print-directory dashboard && PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

# A stack is ten Python processes: each would compile Weft anew where PYTHONDONTWRITEBYTECODE is set.
# Five processes for two cores: tests of clusters and stacks wait for pods, for intervals and for the loss of a node.
PYTEST_FLAGS := -n 5 --dist loadgroup --no-loadscope-reorder
test: setup ## all tests, in five processes
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest $(PYTEST_FLAGS) $(ARGS)

# Which tests are heavy or slow: tests/conftest.py.
test-fast: setup ## the tests that need no trainer environment, cluster or browser, without the slow ones: minutes
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest $(PYTEST_FLAGS) -m "not heavy and not slow" $(ARGS)

coverage: setup ## the share of the code that tests without a trainer environment, cluster or browser reach
	@mkdir -p .coverage && $(BIN)/coverage erase
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/coverage run -m pytest $(PYTEST_FLAGS) -m "not heavy" $(ARGS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report
	@dashboard/npm run --silent coverage

# Not part of `make test`: it needs Docker (or podman behind DOCKER_HOST) with Compose, 15 GB, and on the first run an hour.
test-containers: setup ## the images and docker-compose.yml on a real container engine (docs/containers.md)
	@$(BIN)/pytest tests/containers $(ARGS)

check: setup ## ruff, ruff format, mypy --strict, import-linter; tsc, eslint, and the unit tests of the dashboard
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@$(BIN)/python dashboard/scripts/openapi.py && dashboard/npm run --silent types >/dev/null && dashboard/npm run --silent check
	@dashboard/npm run --silent test

sbom: setup ## dist/sbom: the packages of each deployable, as CycloneDX JSON (ARGS="client dashboard")
	@$(BIN)/python requirements/sbom $(ARGS)

# Exits with 1 for findings, and with 3 if there is no database to check against (make prints: Error 3).
audit: setup ## known vulnerabilities in all locks, by a copy of the OSV database (ARGS=--fetch brings it)
	@$(BIN)/python requirements/audit $(ARGS)

build: setup ## dist/: the sdist, and the wheel that is made from it
	@rm -rf dist && $(BIN)/uv build --quiet --out-dir dist . && ls -sh dist

format: setup ## format, and fix what can be fixed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: setup ## ratios against torchrun, horovodrun and the raw operations: tables, one of all ratios, and build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

bench-check: setup ## the same, compared with benchmarks/baseline.json (ARGS="submit cli": only these; --keep: a new baseline)
	@$(BIN)/python -m benchmarks --check $(ARGS)

chaos: setup ## many short jobs while all parts are killed and frozen (ARGS="--jobs 60 --engines local"; benchmarks/README.md)
	@$(BIN)/python -m benchmarks.chaos $(ARGS)

bench-logs: setup ## of log lines: latency, lines/s, lost and doubled ones while processes are killed, the tail of 10 GB
	@$(BIN)/python -m benchmarks logs

images: ## the trainer images as containers, smoke-tested (ARGS="--variant cuda --push …"; trainer_images/images --help)
	@$(PYTHON) trainer_images/images $(ARGS)

clean: ## remove the virtual environment and caches of this folder (not the shared trainer environments)
	@rm -rf $(VENV) site dashboard/node_modules dashboard/.cache api/weft_api/dashboard/static .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
