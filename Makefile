# `make demo` and `make test` work from a clean clone with Python >= 3.11 and nothing else.
PYTHON ?= python3
# One environment an interpreter: .venv for python3, .venv-python3.13 for PYTHON=python3.13.
VENV ?= .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

.PHONY: setup demo test test-all check bench gallery race race-small neural-sde deep-generative docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "asvi needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $@

demo: setup
	$(BIN)/python examples/eight_schools.py

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow"

test-all: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

check: $(VENV)/.docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.report --check
	$(BIN)/mkdocs build --strict --quiet

bench: setup
	$(BIN)/python -m benchmarks.foundation
	$(BIN)/python -m benchmarks.fit_tasks
	$(BIN)/python -m benchmarks.verdicts
	$(BIN)/python -m benchmarks.everyday.fits

gallery: setup
	$(BIN)/python -m benchmarks.gallery

race: $(VENV)/.bench
	$(BIN)/python -m benchmarks.race

race-small: $(VENV)/.bench
	$(BIN)/python -m benchmarks.race --small --limit 60 --again --results out/race-small

$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	touch $@

deep-generative: setup
	$(BIN)/python -m experiments.deep_generative

neural-sde: setup
	$(BIN)/python -m experiments.neural_sde --out out/neural-sde

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) out site .jax_cache .pytest_cache .ruff_cache .hypothesis
