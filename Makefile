# make install   everything into .venv (again only when pyproject.toml or constraints.txt change)
# make demo      train a nested tagger on examples/gum_open, score it, tag examples/passage.txt
# make test      ruff, mypy, the fast tests, the slow tests
# make lint      ruff and mypy alone
# make format    rewrite the code the way `make lint` wants it
# make bench     speed of encoder and heads, as JSON in build/
#
# PYTHON=python3.12      another Python to make .venv with
# PIP_FLAGS="..."        more options for pip, e.g. another index for PyTorch

PYTHON ?= python3
PIP_FLAGS ?=
WORKERS ?= 2

BIN := .venv/bin
READY := .venv/.spanwright-installed
DEMO := build/demo
SHELL := /bin/bash
# Each test worker keeps to one thread; more would only fight over the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.PHONY: install demo test lint format bench clean
.DELETE_ON_ERROR:

install: $(READY)

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Spanwright needs Python 3.11 or newer, and there is no '$(PYTHON)'. Name one: make $(or $(MAKECMDGOALS),install) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Spanwright needs Python 3.11 or newer; $$($(PYTHON) --version) is too old. Name another: make $(or $(MAKECMDGOALS),install) PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) could not make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo 'Installing Spanwright and what it needs into .venv: a few minutes, about 1.7 GB'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[dev,minilm,tensorboard]'
	@touch $@

# Threads that wait for one another asleep: nothing is lost, and a busy machine is not made busier.
demo: export OMP_WAIT_POLICY := passive
demo: $(READY)
	$(BIN)/spanwright train examples/demo.toml --output $(DEMO) --overwrite
	$(BIN)/spanwright evaluate $(DEMO) examples/gum_open/test.jsonl
	$(BIN)/spanwright predict $(DEMO) examples/passage.txt --format tree

# One line of pytest closes each run; the last one printed is that of the slow tests, which run only if the fast ones passed.
test: lint
	$(PYTEST) -m 'not slow'
	$(PYTEST) -m slow --dist loadfile --durations 10

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py --words 64 --json build/speed.json

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
