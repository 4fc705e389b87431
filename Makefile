# One verb per target. Needs Python 3.11 or newer and make; everything else goes into .venv.
#
#   make demo          the travel desk on http://127.0.0.1:$(PORT), after one booking by the official client
#   make test          every test that needs no service, with branch coverage
#   make lint          formatting, rules, layers
#   make types         mypy --strict and pyright
#   make conformance   the official suite against the fixture server
#   make faults        FAULT_FLOWS=2000 bookings a store, while processes are killed and responses lost
#   make bench         the library beside FastAPI, mcp and fastmcp (QUICK=1: two minutes); bench.json
#   make instructions  what calls take, counted, and what they took when it was recorded
#   make soak          200 clients of every kind, slow and rude ones among them, for SECONDS=270; from
#                      240 on times are judged too, and want a machine that does nothing else
#   make lowest        the tests and the suite again, on the lowest versions that pyproject.toml admits
#   make format        rewrites what `make lint` would refuse
#   make console       rebuilds the browser console into the package, from console/
#   make console-check the committed build is what console/ gives
#   make docs          the documentation as a site, in site/; every warning and dead link is an error
#   make check         lint, types, docs, console-check, conformance, a minute of soak, test: what .ci/run calls
#
# Another Python beside the first: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
PORT ?= 8000
PYTEST_ARGS ?= -n 2
FAULT_FLOWS ?= 2000
SECONDS ?= 270

VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
BENCH := .venv-bench
SUITE := tests/conformance
PAGE := fastapi_mcp_mrtr/http/console/static

# The venv's node and npm come first; `npx` puts the pinned node of $(SUITE) before both.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test faults lint format types docs console console-check conformance bench instructions lowest check build clean soak soak-minute

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

# ------------------------------------------------------------------ what the targets stand on

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

# pip 25.1 is the first that knows dependency groups.
$(VENV)/.pip: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group test
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@ $(VENV)/.test $(VENV)/.demo

# --ignore-scripts: nothing that is installed runs code of its own.
$(SUITE)/node_modules/.installed: $(SUITE)/package-lock.json | $(VENV)/.dev
	cd $(SUITE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

console/node_modules/.installed: console/package-lock.json | $(VENV)/.dev
	cd console && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# ------------------------------------------------------------------------------- the verbs

demo: $(VENV)/.demo
	@PORT=$(PORT) $(BIN)/python -m demo_app

test: $(VENV)/.test
	$(BIN)/python -m pytest --cov $(PYTEST_ARGS)

# -s: the numbers are worth reading.
faults: $(VENV)/.test
	FAULT_FLOWS=$(FAULT_FLOWS) $(BIN)/python -m pytest --no-cov -s tests/faults

# SEED= repeats what a run printed.
soak: $(VENV)/.test
	$(BIN)/python -m tests.soak.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

soak-minute: SECONDS = 60
soak-minute: soak

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/pyright

console: console/node_modules/.installed
	cd console && npx prettier --log-level warn --write . && npx tsc && npx vite build --logLevel warn

console-check: console/node_modules/.installed
	cd console && npx prettier --log-level warn --check . && npx tsc
	cd console && npx vite build --logLevel warn --outDir ../build/console
	diff -rq build/console $(PAGE) || { echo 'Run `make console` and commit what it builds.'; exit 1; }

conformance: $(SUITE)/node_modules/.installed
	$(BIN)/python -m tests.conformance.run
	$(BIN)/python -m tests.conformance.run_authorization

# An environment of its own: what fastmcp brings is nothing that tests or type checkers are to see.
$(BENCH)/.installed: pyproject.toml
	test -d $(BENCH) || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --group bench
	@touch $@

bench: $(BENCH)/.installed
	@QUICK=$(QUICK) $(BENCH)/bin/python -m tests.bench.run

instructions: $(VENV)/.test
	@$(BIN)/python -m tests.bench.instructions

# The bounds of [project.dependencies] as equalities; everything else as pip chooses.
lowest: $(SUITE)/node_modules/.installed
	$(BIN)/python -m tests.lowest > $(VENV)/lowest.txt
	@cat $(VENV)/lowest.txt
	test -d $(LOWEST) || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable . --group lowest --constraint $(VENV)/lowest.txt
	$(LOWEST)/bin/python -m tests.conformance.run
	$(LOWEST)/bin/python -m pytest --no-cov $(PYTEST_ARGS)

# The tests come last, so that the last line is their summary.
check: lint types docs console-check conformance soak-minute test

build: $(VENV)/.dev
	$(BIN)/python -m hatchling build

docs: $(VENV)/.dev
	$(BIN)/zensical build --strict --clean
	$(BIN)/python -m tests.site_links site

clean:
	rm -rf dist build site .cache .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache $(SUITE)/out
