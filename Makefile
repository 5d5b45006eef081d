# Everything a person does with a checkout. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
# a worker per core, each with one thread of arithmetic
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
.DEFAULT_GOAL := help
.PHONY: help demo test check lint types docs docs-check bench sample clean
.DELETE_ON_ERROR:

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# One environment; each level of installation leaves a stamp, so setting up from nothing happens once.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/base.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/test.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/base.stamp

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/test.stamp $(VENV)/base.stamp

$(VENV)/bench.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

demo: $(VENV)/base.stamp ## Set up from nothing and run the main job on sample_data/
	@mkdir -p $(DEMO)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh sample_data/demo.sh $(DEMO)

test: $(VENV)/test.stamp ## Set up from nothing and run all tests
	$(PYTEST)

check: lint types docs-check ## Lint, types, docs in step with --help, and all tests (what CI runs)
	$(PYTEST)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

docs: $(VENV)/base.stamp ## Write the generated parts of docs/ anew
	$(BIN)/python docs/generate.py

docs-check: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py --check

bench: $(VENV)/bench.stamp ## Measure against the peers and write the tables to docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

sample: $(VENV)/base.stamp ## Generate sample_data/ anew
	$(BIN)/python sample_data/generate.py

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
