# Everything a person does with a checkout. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := $(VENV)/lowest
DEMO := demo
# a worker per core, each with one thread of arithmetic; bytecode is kept, whatever the shell says, since compiling the
# tests with their asserts takes each worker 8 seconds
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
.DEFAULT_GOAL := help
# tests whose numbers could hang on the processor, the BLAS, the threads or the versions
NUMERIC := tests/test_solvers tests/test_noise/test_bounds.py tests/test_noise/test_enumerated_rules.py tests/test_noise/test_randomized_rule_bounds.py tests/test_noise/test_thresholds.py tests/test_noise/test_training.py tests/test_methods/test_contract.py tests/test_methods/test_logloss.py
.PHONY: help lock demo test test-full quick check portable lint types docs docs-check site dist bench papers promises fuzz mutants sample clean
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

# the lowest versions that pyproject.toml allows
$(LOWEST)/test.stamp: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tests/lowest.py > $(LOWEST)/versions.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[numbers]' \
		--constraint $(LOWEST)/versions.txt
	@touch $@

$(VENV)/bench.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

lock: $(VENV)/dev.stamp ## Renew the versions and hashes of what the image holds
	$(BIN)/python .ci/lock.py

demo: $(VENV)/base.stamp ## Set up from nothing and run the main job on sample_data/
	@mkdir -p $(DEMO)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh sample_data/demo.sh $(DEMO)

test: $(VENV)/test.stamp ## Set up from nothing and run the tests, but for slow ones
	$(PYTEST) -m 'not slow'

test-full: $(VENV)/test.stamp ## All tests, the slow ones too, with all their examples and worlds
	HYPOTHESIS_PROFILE=full $(PYTEST)

quick: $(VENV)/dev.stamp ## Set up from nothing; lint, and the tests of what changed since main
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) --dist load --maxschedchunk 2 -q -m 'not slow' --seconds 20 $$($(BIN)/python tests/changed.py)

# types take one core a minute: the lowest versions are set up beside them; that the docs are in step is one of the tests
check: ## Lint, types, all tests, numbers on other machines (what CI runs)
	$(MAKE) lint
	$(MAKE) -j 2 types $(LOWEST)/test.stamp
	$(PYTEST)
	$(MAKE) portable

# numpy takes no instruction beyond its baseline where the features that it dispatches on are switched off
portable: $(LOWEST)/test.stamp ## Test numbers, but for slow laws, as an old processor, two threads and the lowest versions make them
	OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 \
		NPY_DISABLE_CPU_FEATURES="$$($(LOWEST)/bin/python tests/dispatched.py)" \
		$(LOWEST)/bin/python -m pytest -q -n auto --dist worksteal -m 'not slow' $(NUMERIC)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --quiet --deny-warnings fairfix tests

types: $(VENV)/dev.stamp
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini

docs: $(VENV)/base.stamp ## Write the generated parts of docs/ anew
	$(BIN)/python docs/generate.py --printed

docs-check: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py --check

$(VENV)/site.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

site: $(VENV)/site.stamp ## Make the site of docs/: pages with search, a gallery of reports, executed notebooks
	$(BIN)/python docs/site.py

dist: $(VENV)/dev.stamp ## Build wheel and source archive, and check that the wheel works in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tests/dist.py dist

bench: $(VENV)/bench.stamp ## Measure against the peers and write the tables to docs/benchmarks/ and docs/papers/
	$(BIN)/python benchmarks/run.py

papers: $(VENV)/bench.stamp ## Of these, what the methods do on the data of their papers, in DATA=DIR; FETCH=1 fetches what DIR lacks
	$(BIN)/python -m benchmarks.papers $(if $(DATA),--data '$(DATA)') $(if $(FETCH),--fetch)

promises: $(VENV)/test.stamp ## Hold what fairfix says against many worlds of known truth, and print the table
	$(BIN)/python benchmarks/promises.py

fuzz: $(VENV)/test.stamp ## Run N=1000 commands on odd data, 1.4 N changed files and 1.3 N faults, drawn from SEED=0
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run $(or $(N),1000) --seed $(or $(SEED),0)
	HYPOTHESIS_PROFILE=full TIMES=$$((($(or $(N),1000) + 999) / 1000)) SEED=$(or $(SEED),0) $(PYTEST) -m slow tests/fuzz

mutants: $(VENV)/test.stamp ## Count which of N=200 small errors the tests find, drawn from SEED=0
	$(BIN)/python -m tests.mutants $(or $(N),200) --seed $(or $(SEED),0)

sample: $(VENV)/base.stamp ## Generate sample_data/ anew
	$(BIN)/python sample_data/generate.py

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(DEMO) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
