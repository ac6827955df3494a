# Needs Python 3.11 or newer, make and a C library. `make` alone says what there is.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV ?= .venv
# Word(s) after the program's name: `make play ARGS="./cliff.py --seed 3"`.
ARGS ?= blackjack
# One more than the two cores that the suite is written for: tests of screens and processes wait a third of their time.
WORKERS ?= 3

# The first interpreter that is new enough; `make PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# uv takes a quarter of pip's time (ADR 0001). Where it cannot be had, or reach what it needs, pip does.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PLAY_STAMP := $(VENV)/.installed-play
DEV_STAMP := $(VENV)/.installed-dev
DOCS_STAMP := $(VENV)/.installed-docs
COMPILED_STAMP := $(VENV)/.compiled
# One thread in each test process: more of them on few cores is slower, not faster.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
# Each test process, and each program that a test starts, would compile every module anew, which takes it 15 s.
ONE_THREAD += PYTHONDONTWRITEBYTECODE=

# The kernels of a processor with AVX2 and of one without vector instructions. MKL heeds its limits on Intel's alone;
# there, and on others, COMPATIBLE takes the kernels that every processor has.
AVX2 := ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
NO_VECTORS := ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE
PORTABLE = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not gpu" tests/engine tests/trainer
# These compare computations whose rounding differs most from one kind of kernels to another.
KERNELS := tests/engine/learning/test_ranks.py tests/engine/learning/test_naive_updates.py tests/engine/model/test_forward.py

# What the site shows, laid out as here.
PAGES := README.md CHANGELOG.md SECURITY.md docs benchmarks/RESULTS.md benchmarks/strangers llamagym_tui/bundled_model/README.md

.PHONY: help play test test-all test-gpu test-portable test-kernels checks lint format types imports pytest pictures wheel docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

play: $(PLAY_STAMP) ## install what is missing and open the playground
	@$(BIN)/llamagym-tui $(ARGS)

# Beside the tests, which wait a part of their time.
test: $(DEV_STAMP) ## every check that a change has to pass
	@$(MAKE) --no-print-directory -j2 checks pytest

checks: lint types imports

test-all: lint types imports ## the same with the tests marked slow
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not gpu"
	@# What a screen shows must not depend on what it had painted before.
	PAUSES=1 $(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not gpu" tests/screens

test-gpu: $(DEV_STAMP) ## the tests that need an accelerator; they are skipped where there is none
	$(BIN)/python -m pytest -q -m gpu

test-portable: $(COMPILED_STAMP) ## the engine's and trainer's tests: native, with AVX2, without vector instructions
	$(ONE_THREAD) $(PORTABLE)
	$(ONE_THREAD) $(AVX2) $(PORTABLE)
	$(ONE_THREAD) $(NO_VECTORS) $(PORTABLE)

test-kernels: $(COMPILED_STAMP) ## the tests that kernels change most, without vector instructions
	$(ONE_THREAD) $(NO_VECTORS) $(BIN)/python -m pytest -q -m "not slow and not gpu" $(KERNELS)

lint: $(DEV_STAMP) ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV_STAMP) ## ruff: repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV_STAMP) ## mypy
	$(BIN)/mypy

imports: $(DEV_STAMP) ## import rules
	@# Its cache keeps what a module imported when some of the modules were not there yet.
	$(BIN)/lint-imports --no-logo --no-cache

pytest: $(COMPILED_STAMP) ## the tests that are not marked slow
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not gpu" --durations=10

wheel: $(DEV_STAMP) ## dist/*.whl
	rm -rf build
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	rm -rf build

docs: $(DOCS_STAMP) ## build/site, the pages of docs/
	rm -rf build/pages && mkdir -p build/pages
	tar cf - $(PAGES) | tar xf - -C build/pages
	$(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

pictures: $(DEV_STAMP) ## docs/pictures, exported from the running app; PARTS=film, stills or sorting takes some
	$(BIN)/python -m scripts.return_chart
	$(BIN)/python -m scripts.take_pictures $(PARTS)

clean: ## remove what the checks and builds leave behind; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage snapshot_report.html

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; install it, or name it: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt uv || echo "There is no uv to be had; pip installs alone." >&2

# What uv cannot install, pip does. Modules are compiled when they are first imported: many never are.
define install
@$(UV) -c constraints.txt $(1) || { echo "uv could not; pip goes on." >&2; $(PIP) install -c constraints.txt $(1); }
endef

# torch first and pinned. On Linux it may bring several GB for GPUs: without one, uv takes the small CPU build, and if
# that cannot be reached pip takes what it finds where it is set to look.
$(PLAY_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV); this takes a minute or more the first time."
	@if [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null; then \
		UV_HTTP_RETRIES=1 $(UV) --torch-backend cpu -c constraints.txt torch==2.13.0 2>/dev/null || \
		echo "uv could not get the CPU build of torch; pip goes on." >&2; fi
	$(PIP) install --no-compile -c constraints.txt torch==2.13.0
	$(call install,-e .)
	@touch $@

$(DEV_STAMP): $(PLAY_STAMP)
	$(call install,-e '.[dev]')
	@touch $@

# What the tests import, by one process: else each test process compiles all of it at the same time.
$(COMPILED_STAMP): $(DEV_STAMP)
	@$(ONE_THREAD) $(BIN)/python -m pytest -q --collect-only >/dev/null || true
	@touch $@

$(DOCS_STAMP): $(PLAY_STAMP)
	$(call install,-e '.[docs]')
	@touch $@
