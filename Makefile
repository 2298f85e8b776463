# Every target makes .venv when it is missing and installs this checkout into it.

VENV := .venv
PY   := $(VENV)/bin/python
STAMP := $(VENV)/.installed
JOBS ?= 2
N ?= 200
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := test
.PHONY: demo test unit system check format lint types contracts bench fuzz mutants coverage clean

# A name on PATH may be a shim that does not run, so each candidate is asked for its version.
$(PY):
	@for p in python3.13 python3.12 python3.11 python3 python; do \
	    if $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then \
	        echo "making $(VENV) with $$($$p --version)"; exec $$p -m venv $(VENV); \
	    fi; \
	done; echo "needs Python 3.11, 3.12 or 3.13 on PATH" >&2; exit 1

$(STAMP): pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev,keras2]'
	@touch $@

demo: $(STAMP)
	$(PY) examples/demo.py

test: $(STAMP)
	$(PY) -m pytest -n $(JOBS) -m "not system"

# The tests of everything that reasons, in processes where importing TensorFlow is an error.
unit: $(STAMP)
	$(PY) -m pytest -n $(JOBS) -m "not tf and not system" --forbid-tensorflow

system: $(STAMP)
	$(PY) -m pytest -n $(JOBS) -m system --timeout 1800

check: lint types contracts test

lint: $(STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

types: $(STAMP)
	$(PY) -m mypy

contracts: $(STAMP)
	$(VENV)/bin/lint-imports

format: $(STAMP)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(STAMP)
	@set -e; for f in benchmarks/[a-z]*.py; do name=$$(basename $$f .py); echo "== $$name"; $(PY) -m benchmarks.$$name; done

# Random programs through the default order and random ones on 1, 2 and 3 devices: make fuzz N=5000 SECONDS=3600 FIRST=0
fuzz: $(STAMP)
	$(PY) -m tests.fuzz --count $(N) --jobs $(JOBS) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(FIRST),--first $(FIRST)) $(if $(OUT),--out $(OUT))

# A sample of small changes to what the tests must notice: COUNT of them, another sample for another SEED.
mutants: $(STAMP)
	$(PY) -m tests.tools.mutate --count $(or $(COUNT),30) --seed $(or $(SEED),0)

coverage: $(STAMP)
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -m "not system"
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov
